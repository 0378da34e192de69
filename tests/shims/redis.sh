# Builds redis 7, from Debian's source, against the shim of jemalloc in place of its own jemalloc,
# runs parts of its test suite, and has it defragment a fragmented heap.
. "$S/source.sh"
source_of redis
cd redis
export PKG_CONFIG_PATH="$P/lib/pkgconfig"
make -j2 MALLOC=libc OPTIMIZATION=-O1 \
    REDIS_CFLAGS="-DUSE_JEMALLOC $(pkg-config --cflags ebbmalloc_jemalloc)" \
    REDIS_LDFLAGS="$(pkg-config --libs ebbmalloc_jemalloc) -Wl,-rpath,$P/lib"
src/redis-server --version | grep -q 'malloc=jemalloc-5.3.0'
ldd src/redis-server | grep -q libebbmalloc_jemalloc.so

# Its own tests; memefficiency has those of active defragmentation. Three of these expect figures of
# jemalloc: more fragmentation before than there is here, or none in memory of Lua, which redis does
# not move and for which jemalloc does not serve.
./runtest --clients 2 --no-latency --skiptest 'Active defrag eval scripts' \
    --skiptest 'Active defrag big keys' --skiptest 'Active defrag big list' \
    --single unit/memefficiency --single unit/other --single unit/type/hash --single unit/dump \
    --single unit/introspection

# Half a million values, of which an eighth stay.
src/redis-server --port 0 --unixsocket "$PWD/redis.sock" --save '' --daemonize yes \
    --enable-debug-command yes \
    --pidfile "$PWD/redis.pid" --logfile "$PWD/redis.log"
cli() { src/redis-cli -s "$PWD/redis.sock" "$@"; }
until cli ping; do sleep 0.1; done
cli eval 'for i = 1, 500000 do redis.call("set", "key:" .. i, string.rep("x", 150)) end
    for i = 1, 500000 do if i % 8 ~= 0 then redis.call("del", "key:" .. i) end end' 0
figure() { cli info memory | tr -d '\r' | sed -n "s/^$1://p"; }
sleep 1
before=$(figure allocator_frag_bytes)
cli memory malloc-stats | grep -q live_bytes
cli memory purge | grep -qx OK
cli config set active-defrag-ignore-bytes 1mb
cli config set active-defrag-threshold-lower 5
cli config set active-defrag-cycle-min 40
cli config set active-defrag-cycle-max 60
cli config set activedefrag yes
for i in $(seq 300); do
    after=$(figure allocator_frag_bytes)
    if [ "$after" -lt $((before / 4)) ]; then break; fi
    sleep 0.2
done
echo "fragmentation: $before bytes before, $after after"
[ "$before" -gt 20000000 ] && [ "$after" -lt $((before / 4)) ]
cli info stats | grep active_defrag_hits
cli eval 'for i = 8, 500000, 8 do assert(#redis.call("get", "key:" .. i) == 150) end' 0
cli debug mallctl-str version | grep -q ebbmalloc
cli shutdown nosave
cd ..
rm -rf redis lists
echo 'served by ebbmalloc 0.1.0'
