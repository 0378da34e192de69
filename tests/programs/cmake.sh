# CMake, ninja and make: a project of twenty files and a library, configured, built twice, tested.
# packages: cmake ninja-build make gcc libc6-dev
# also: harden
# version: cmake --version
# when: long
. "$(dirname "$0")/on.sh"

for n in $(seq 20); do echo "int f$n(int x) { return x * $n + 1; }" > f$n.c; done
{
    seq -f 'int f%g(int);' 20
    echo '#include <stdio.h>'
    echo 'int main(void) { int s = 0;'
    seq -f 's += f%g(s %% 1000);' 20
    echo 'printf("%d\n", s); return 0; }'
} > main.c
cat > CMakeLists.txt <<'CM'
cmake_minimum_required(VERSION 3.16)
project(many C)
file(GLOB sources f*.c)
list(SORT sources)
add_library(parts STATIC ${sources})
add_executable(app main.c)
target_link_libraries(app parts)
enable_testing()
foreach(n RANGE 1 20)
  add_test(NAME t${n} COMMAND app)
endforeach()
configure_file(in.txt out.txt @ONLY)
CM
echo 'name @PROJECT_NAME@' > in.txt
for generator in Ninja 'Unix Makefiles'; do
    # It reads what compilers say on standard error.
    EBB_STATS='' on cmake -G "$generator" -S . -B "build $generator" > log
    on cmake --build "build $generator" -j 2 > log
    (cd "build $generator" && on ctest -j 4 | grep 'tests passed' && ./app && cat out.txt)
done
on ninja -C 'build Ninja' | tail -n 1
