// Any C++ program: `new` and `delete` use ebbmalloc too, whichever the standard library.
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

extern "C" std::size_t ebb_stats(int format, char *buffer, std::size_t bytes) __attribute__((weak));

struct alignas(128) Line {
    char bytes[128];
};

int main() {
    std::map<std::string, std::vector<int>> lists;
    for (int i = 0; i < 1000; i++) lists["list number " + std::to_string(i % 100)].push_back(i);
    auto line = std::make_unique<Line>();
    std::string text(200, '\0');
    if (ebb_stats != nullptr) ebb_stats(1, text.data(), text.size()); // 1: EBB_STATS_TEXT
    text.resize(text.find_first_of(std::string("\n\0", 2)));
    std::printf("served by %s\n",
                text.empty() ? "the C library's malloc" : ("ebbmalloc " + text).c_str());
    return lists.size() == 100 ? 0 : 1;
}
