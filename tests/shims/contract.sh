# Builds the contract program of a shim, $SHIM, against its library and its object, and runs it in
# each mode, with other options, and with libebbmalloc.so loaded first.
export PKG_CONFIG_PATH="$P/lib/pkgconfig"
cc="cc -O1 -Wall -Wextra -Werror -fno-builtin -pthread -I$S/../c"
$cc $(pkg-config --cflags "ebbmalloc_$SHIM") "$S/$SHIM.c" -o shared \
    $(pkg-config --libs "ebbmalloc_$SHIM") -Wl,-rpath,"$P/lib"
$cc $(pkg-config --cflags "ebbmalloc_$SHIM") "$S/$SHIM.c" -o object \
    $(pkg-config --variable=object "ebbmalloc_$SHIM")
ldd shared | grep -q "libebbmalloc_$SHIM.so.0 => $P/lib/"
# The header is one for C++ too.
printf '#include <cstdlib>\n#include <malloc.h>\n#include <%s>\n' "$HEADER" > header.cpp
for standard in c++98 c++20; do
    c++ -std=$standard -Wall -Wextra -Werror $(pkg-config --cflags "ebbmalloc_$SHIM") \
        -c header.cpp -o header.o
done
if [ -e "$S/$SHIM.cpp" ]; then
    c++ -Wall -Wextra -Werror $(pkg-config --cflags "ebbmalloc_$SHIM") "$S/$SHIM.cpp" \
        -o declared $(pkg-config --variable=object "ebbmalloc_$SHIM")
    ./declared
fi
./object
./shared
for setting in EBB_MODE=thread EBB_SAMPLE=100 EBB_CHECK=1 EBB_HARDEN=1; do
    env $setting ./shared 2> said || { cat said >&2; exit 1; }
done
# One engine serves: that of the library that was loaded first.
LD_PRELOAD="$P/lib/libebbmalloc.so" ./shared elsewhere
