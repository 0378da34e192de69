# redis-server under redis-benchmark, by a socket of its own; a second server reads its snapshot.
# Debian's redis-server is linked to jemalloc, but calls it as malloc and free, so preloading
# replaces it. INFO still names jemalloc; the statistics at exit prove that the library serves.
# packages: redis-server redis-tools
# also: harden
# version: redis-server --version
. "$(dirname "$0")/on.sh"

cli() { redis-cli -s redis.sock "$@"; }
start() {
    on redis-server --port 0 --unixsocket redis.sock --save '' --dbfilename dump.rdb --dir . \
        > "$1" &
    trap "kill $! 2> /dev/null || true" EXIT
    for attempt in $(seq 1200); do
        cli ping > /dev/null 2>&1 && return
        sleep 0.1
    done
    echo "the server does not answer:"
    tail "$1"
    exit 1
}

start first.log
redis-benchmark -s redis.sock -q -n 3000 -c 30 -r 5000 -d 100 \
    -t set,get,incr,lpush,rpush,lpop,sadd,hset,spop,zadd,lrange_100,mset > benchmark.log
cli flushall
seq 1 8000 | sed 's/.*/SET key:& "value & of many, in a string of some length"/' |
    cli --pipe > pipe.log
seq 1 8000 | sed 's/.*/HSET hash:& field & other "&&&"/' | cli --pipe >> pipe.log
seq 1 8000 | sed 's/.*/ZADD ranking & member:&/' | cli --pipe >> pipe.log
grep -c 'errors: 0' pipe.log
cli dbsize
cli get key:1234
cli hgetall hash:777
cli zrange ranking 100 103
cli eval 'local sum = 0
    for i = 1, 8000 do sum = sum + #redis.call("get", "key:" .. i) end
    return sum' 0
used=$(cli info memory | sed -n 's/^used_memory:\([0-9]*\).*/\1/p')
((used > 2000000 && used < 100000000)) && echo "memory in use is plausible"
cli save
cli shutdown nosave > /dev/null 2>&1 || true
wait

start second.log
cli dbsize
cli get key:8000
cli zcard ranking
cli shutdown nosave > /dev/null 2>&1 || true
wait
