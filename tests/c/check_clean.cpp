// Correct code of many kinds runs to its end; the usable size of a block is the requested size.
// expect: exit 0
// check: only
#include "check.h"
#include <cstdlib>
#include <malloc.h>
#include <map>
#include <string>
#include <thread>
#include <vector>

static void work(unsigned seed) {
    std::map<unsigned, std::string> texts;
    std::vector<void *> blocks;
    for (unsigned i = 0; i < 2000; i++) {
        texts[i * seed % 97].append(i % 13, 'x');
        size_t size = i * 7 % 3000, align = size_t(16) << i % 9;
        void *block = aligned_alloc(align, size);
        CHECK(block && (uintptr_t)block % align == 0 && malloc_usable_size(block) == size);
        memset(block, (int)i, size);
        if (i % 3 == 0) CHECK((block = realloc(block, size * 2 + 1)) != NULL);
        blocks.push_back(block);
        char *zeros = (char *)calloc(i, 3);
        for (unsigned at = 0; at < i * 3; at++) CHECK(zeros[at] == 0);
        free(zeros);
    }
    for (void *block : blocks) free(block);
}

int main() {
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < 5; i++) threads.emplace_back(work, i);
    for (auto &thread : threads) thread.join();
    CHECK(malloc_trim(0) >= 0);
    return 0;
}
