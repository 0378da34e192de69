// A large translation unit for compilers: much of the standard library, and templates on top. It is
// compiled, never run.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <ranges>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

template <int N>
struct Tag {
    int value = N;
};

/// A table for each type, which instantiates all its containers.
template <typename Key>
class Registry {
public:
    void add(std::string name, Key key) {
        auto shared = std::make_shared<Key>(std::move(key));
        by_name.emplace(name, shared);
        ordered[name].push_back(shared);
        listeners.push_back([shared](int more) { return shared->value + more; });
    }

    int total() const {
        auto values = ordered | std::views::values | std::views::join
            | std::views::transform([](const auto& shared) { return shared->value; })
            | std::views::filter([](int value) { return value % 2 == 0; });
        int sum = 0;
        for (int value : values) sum += value;
        for (const auto& listener : listeners) sum += listener(sum);
        return sum + static_cast<int>(by_name.size());
    }

    std::vector<std::string> names() const {
        std::vector<std::string> all;
        std::ranges::copy(by_name | std::views::keys, std::back_inserter(all));
        std::ranges::sort(all, std::greater{});
        return all;
    }

private:
    std::unordered_map<std::string, std::shared_ptr<Key>> by_name;
    std::map<std::string, std::vector<std::shared_ptr<Key>>> ordered;
    std::vector<std::function<int(int)>> listeners;
};

template <typename Variant>
int visit_both(const Variant& left, const Variant& right) {
    return std::visit([](const auto& a, const auto& b) { return a.value * b.value; }, left, right);
}

template <int... N>
int everything(std::integer_sequence<int, N...>) {
    std::tuple<Registry<Tag<N>>...> registries;
    (std::get<N>(registries).add("tag " + std::to_string(N), Tag<N>{}), ...);
    using Any = std::variant<Tag<N>...>;
    std::vector<Any> all{Tag<N>{}...};
    int sum = (std::get<N>(registries).total() + ...);
    for (const auto& left : all)
        for (const auto& right : all) sum += visit_both(left, right);
    std::size_t names = (std::get<N>(registries).names().size() + ...);
    return sum + static_cast<int>(names);
}

}  // namespace

int main() {
    std::cout << everything(std::make_integer_sequence<int, 2>{}) << '\n';
}
