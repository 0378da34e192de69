// Static and thread_local C++ objects allocate in constructors and destructors.
// expect: exit 0
#include "check.h"
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct Registry {
    std::map<int, std::string> entries;
    Registry() {
        for (int i = 0; i < 3000; i++) entries[i] = std::string(std::size_t(i % 200), 'x');
    }
    ~Registry() {
        std::vector<std::string> copies;
        for (auto &entry : entries) {
            CHECK(entry.second.size() == std::size_t(entry.first % 200));
            copies.push_back(entry.second + "!");
        }
    }
};

static Registry early __attribute__((init_priority(101)));
static Registry usual;

struct PerThread {
    std::vector<std::unique_ptr<std::string>> kept;
    ~PerThread() {
        for (auto &text : kept) CHECK(text->size() == 60);
        std::string another(5000, 'y');
        kept.push_back(std::make_unique<std::string>(another));
    }
};
static thread_local PerThread local;
static thread_local std::map<std::string, std::string> second;

int main() {
    for (int round = 0; round < 100; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; i++)
            threads.emplace_back([i] {
                for (int k = 0; k < 50; k++) {
                    local.kept.push_back(std::make_unique<std::string>(60, char('a' + i)));
                    second[std::string(40, char('a' + k))] = std::string(std::size_t(k) * 10, 'z');
                }
            });
        for (auto &thread : threads) thread.join();
    }
    local.kept.push_back(std::make_unique<std::string>(60, 'm'));
    static Registry within_main;
    return within_main.entries.size() == 3000 ? 0 : 1;
}
