// Reads directories step by step. The function for the next step holds itself, and so all that it
// has captured.
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace {

using Entries = std::shared_ptr<std::vector<char>>;
using Next = std::function<void(std::size_t)>;

struct Directory {
    std::size_t sectors;

    Entries buffer() const {
        return std::make_shared<std::vector<char>>(16384, 'e'); // LEAK
    }

    void read(const std::function<void(const Entries &)> &callback) const {
        auto entries = buffer();
        auto next = std::make_shared<Next>();
        *next = [this, entries, callback, next](std::size_t sector) {
            if (sector == sectors) return callback(entries);
            (*entries)[sector] = 'r';
            (*next)(sector + 1);
        };
        (*next)(0);
    }
};

} // namespace

int main() {
    std::size_t seen = 0;
    const Directory directory{64};
    std::vector<std::vector<char>> pages;
    for (int nth = 0; nth < 600; nth++) {
        directory.read([&](const Entries &entries) { seen += entries->size(); });
        pages.emplace_back(20000, 'p');
        if (pages.size() > 100) pages.clear();
    }
    return seen == 600 * 16384 ? 0 : 1;
}
