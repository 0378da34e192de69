# The compiler on a C++ file with much of the standard library: the same object file, byte for byte.
# packages: g++
# timeout: 180
. "$(dirname "$0")/on.sh"

headers="algorithm any array bitset charconv chrono complex deque filesystem forward_list functional future
    iomanip iostream iterator list locale map memory memory_resource mutex numeric optional queue random
    regex set shared_mutex sstream stack string string_view thread tuple unordered_map unordered_set utility
    valarray variant vector"
{
    for header in $headers; do echo "#include <$header>"; done
    echo 'template <int N> struct Sum { static constexpr long value = N + Sum<N - 1>::value; };'
    echo 'template <> struct Sum<0> { static constexpr long value = 0; };'
    echo 'long sum() { return Sum<800>::value; }'
    for number in $(seq 1 3); do
        echo "struct T$number { std::map<std::string, std::vector<int>> map; std::variant<int, std::string> either; };"
        echo "std::size_t use$number(T$number &t, const std::string &s) {"
        echo "    if (std::regex_match(s, std::regex(\"a+b?\"))) t.map[s].push_back($number), t.either = s;"
        echo '    std::sort(t.map[s].begin(), t.map[s].end(), [](int a, int b) { return a > b; });'
        echo '    return t.map.size() + std::visit([](auto &v) { return sizeof v; }, t.either); }'
    done
} > big.cpp

on g++ -std=c++17 -O1 -c big.cpp -o optimised.o
on g++ -std=c++17 -O0 -g -ffile-prefix-map="$PWD"=. -c big.cpp -o debug.o
for object in optimised.o debug.o; do
    echo "$object $(digest < $object)"
done
