# clang compiles and analyses C++ with the standard library's templates; llvm-objdump reads it.
# packages: clang llvm libstdc++-12-dev
# also: harden
# version: clang --version
# timeout: 600
# when: long
. "$(dirname "$0")/on.sh"

{
    for header in algorithm map memory regex string variant vector; do
        echo "#include <$header>"
    done
    for number in $(seq 1 5); do
        echo "struct T$number {"
        echo "    std::map<std::string, std::vector<int>> map;"
        echo "    std::variant<int, std::string> either; };"
        echo "std::size_t use$number(T$number &t, const std::string &s) {"
        echo "    if (std::regex_match(s, std::regex(\"a+b?\")))"
        echo "        t.map[s].push_back($number), t.either = s;"
        echo '    std::sort(t.map[s].begin(), t.map[s].end(), [](int a, int b) { return a > b; });'
        echo '    return t.map.size() + std::visit([](auto &v) { return sizeof v; }, t.either); }'
    done
    echo 'int leak(int n) { int *p = new int[n]; if (n > 3) return 0; delete[] p; return *p; }'
} > big.cpp
on clang++ -std=c++17 -O2 -g -ffile-prefix-map="$PWD"=. -c big.cpp
digest < big.o
on clang++ -std=c++17 --analyze big.cpp 2>&1 | grep -c 'warning:'
on llvm-objdump -d big.o | digest
