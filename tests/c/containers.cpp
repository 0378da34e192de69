// Containers, strings and shared pointers of libstdc++ and libc++, passed between threads.
// expect: exit 0
// check: no takes seconds in check mode; check_clean.cpp is a shorter one
// build: g++
// build: clang++ -stdlib=libc++
#include "check.h"
#include <deque>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

using Shared = std::shared_ptr<std::vector<std::string>>;
enum { STEPS = 8000, KEPT = 500 };
static std::mutex lock;
static std::deque<Shared> exchange;

static std::string word(unsigned number) {
    return std::string(number % 90, char('a' + number % 26)) + std::to_string(number);
}

static std::size_t work(unsigned seed) {
    std::map<std::string, unsigned> ordered;
    std::unordered_map<unsigned, std::string> hashed;
    std::list<std::string> list;
    std::set<unsigned> set;
    uint32_t state = seed + 1;
    for (unsigned i = 0; i < STEPS; i++) {
        unsigned number = random32(&state) % 5000;
        ordered[word(number)] = number;
        hashed[number] = word(number);
        list.push_back(word(i));
        if (list.size() > KEPT) list.pop_front();
        if (!set.insert(number).second) set.erase(number), hashed.erase(number);
        if (i % 50 == 0) {
            auto made = std::make_shared<std::vector<std::string>>();
            for (unsigned k = 0; k < 20; k++) made->push_back(word(i + k));
            made->push_back(std::to_string(i));
            std::lock_guard<std::mutex> guard(lock);
            exchange.push_back(made);
            if (exchange.size() > 100) {
                Shared old = exchange.front();
                exchange.pop_front();
                unsigned base = unsigned(std::stoul(old->back()));
                for (unsigned k = 0; k < 20; k++) CHECK((*old)[k] == word(base + k));
            }
        }
    }
    for (auto &entry : ordered) CHECK(entry.first == word(entry.second));
    for (auto &entry : hashed) CHECK(entry.second == word(entry.first));
    unsigned expected = STEPS - KEPT;
    for (auto &text : list) CHECK(text == word(expected++));
    return ordered.size();
}

int main() {
    std::vector<std::future<std::size_t>> results;
    for (unsigned i = 0; i < 6; i++) results.push_back(std::async(std::launch::async, work, i));
    for (auto &result : results) CHECK(result.get() > 3000);
    return 0;
}
