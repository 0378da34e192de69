# g++ on a C++ file with the standard library's templates: the same object file, byte for byte.
# packages: g++
# also: harden
# version: g++ -dumpfullversion
. "$(dirname "$0")/on.sh"

headers="algorithm map string variant vector"
{
    for header in $headers; do echo "#include <$header>"; done
    echo 'template <int N> struct Sum { static constexpr long value = N + Sum<N - 1>::value; };'
    echo 'template <> struct Sum<0> { static constexpr long value = 0; };'
    echo 'long sum() { return Sum<800>::value; }'
    for number in $(seq 1 3); do
        echo "struct T$number {"
        echo "    std::map<std::string, std::vector<int>> map;"
        echo "    std::variant<int, std::string> either; };"
        echo "std::size_t use$number(T$number &t, const std::string &s) {"
        echo "    if (s.size() > $number) t.map[s].push_back($number), t.either = s;"
        echo '    std::sort(t.map[s].begin(), t.map[s].end(), [](int a, int b) { return a > b; });'
        echo '    return t.map.size() + std::visit([](auto &v) { return sizeof v; }, t.either); }'
    done
} > big.cpp

on g++ -std=c++17 -O1 -g -ffile-prefix-map="$PWD"=. -c big.cpp
digest < big.o
