# mi_new calls the new-handler and throws, also where the program's operators call it; containers
# use mi_stl_allocator.
cat > new.cpp <<'END'
#include <cstdio>
#include <cstdlib>
#include <mimalloc.h>
#include <new>
#include <vector>

#ifdef OPERATORS
void *operator new(std::size_t size) { return mi_new(size); }
void operator delete(void *block) noexcept { mi_free(block); }
void operator delete(void *block, std::size_t size) noexcept { mi_free_size(block, size); }
#endif

static int handled;
static void handle() {
    if (++handled == 3) std::set_new_handler(nullptr);
}

template <class Work> void throws(Work work) {
    handled = 0;
    std::set_new_handler(handle);
    try {
        work();
    } catch (const std::bad_alloc &) {
        if (handled == 3) return;
    }
    std::printf("handled %d\n", handled);
    std::exit(1);
}

int main() {
    volatile std::size_t huge = SIZE_MAX / 2;
    throws([&] { mi_new(huge); });
    throws([&] { mi_new_aligned(huge, 4096); });
    throws([&] { mi_new_n(huge, 8); });
    throws([&] { mi_new_realloc(nullptr, huge); });
    throws([&] { mi_heap_alloc_new(mi_heap_main(), huge); });
    throws([&] { delete[] new char[huge]; });
    struct alignas(64) Line { char bytes[64]; };
    std::vector<int, mi_stl_allocator<int>> numbers;
    std::vector<Line, mi_stl_allocator<Line>> lines(3);
    for (int i = 0; i < 100000; i++) numbers.push_back(i);
    if (numbers[99999] != 99999 || (std::size_t)&lines[0] % 64 != 0) return 2;
    std::puts("served by ebbmalloc 0.1.0");
}
END
export PKG_CONFIG_PATH="$P/lib/pkgconfig"
for define in PLAIN OPERATORS; do
    c++ -std=c++17 -Wall -Wextra -D$define $(pkg-config --cflags ebbmalloc_mimalloc) new.cpp \
        -o $define $(pkg-config --libs ebbmalloc_mimalloc) -Wl,-rpath,"$P/lib"
    ./$define
done
