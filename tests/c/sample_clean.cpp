// A correct program runs to its end with sampled blocks of all sizes: threads, forks, realloc.
// expect: exit 0
// says: "sampled_blocks"
// env: EBB_SAMPLE=1
#include "check.h"
#include <malloc.h>
#include <cstdlib>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

static void work(unsigned seed) {
    std::map<unsigned, std::string> names;
    std::vector<std::pair<unsigned char *, size_t>> blocks;
    uint32_t state = seed;
    for (unsigned i = 0; i < 3000; i++) {
        size_t size = random_size(&state) % 5000, align = (size_t)16 << random32(&state) % 5;
        auto block =
            static_cast<unsigned char *>(i % 3 ? aligned_alloc(align, size) : calloc(1, size));
        CHECK(block && (i % 3 == 0 || aligned_to(block, align)) &&
              malloc_usable_size(block) >= size);
        if (i % 3 == 0)
            for (size_t at = 0; at < size; at++) CHECK(block[at] == 0);
        fill(block, size, i);
        if (i % 5 == 0) {
            CHECK((block = static_cast<unsigned char *>(realloc(block, 2 * size + 1))) &&
                  intact(block, size, i));
            size = 2 * size + 1;
            fill(block, size, i);
        }
        if (blocks.size() < 300) {
            blocks.emplace_back(block, size);
        } else {
            auto &[old, length] = blocks[random32(&state) % 300];
            CHECK(intact(old, length, *old));
            free(old);
            old = block, length = size;
        }
        names[random32(&state) % 100] = std::string(size % 200, 'x');
    }
    for (auto [block, size] : blocks) CHECK(intact(block, size, *block)), free(block);
}

int main() {
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < 4; i++) threads.emplace_back(work, i);
    for (int i = 0; i < 10; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            for (unsigned n = 0; n < 1000; n++) free(OPAQUE(malloc(n)));
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (auto &thread : threads) thread.join();
    work(4);
}
