# memcached with values of many sizes, counters, eviction at its limit, over a socket of its own.
# packages: memcached netcat-openbsd
# also: check harden
# version: memcached --version
. "$(dirname "$0")/on.sh"

on memcached -u "$(id -un)" -s memcached.sock -P "$PWD/pid" -m 8 -t 4 > server.log &
trap 'kill $(cat pid) 2> /dev/null || true' EXIT
for attempt in $(seq 1200); do
    [ -S memcached.sock ] && break
    sleep 0.1
done
ask() { nc -U -N memcached.sock | tr -d '\r'; }

store() {
    awk -v from="$1" -v to="$2" 'BEGIN {
        for (i = from; i <= to; i++) {
            value = sprintf("%0*d", 10 + i * 37 % 3000, i)
            printf "set key%d %d 0 %d\r\n%s\r\n", i, i % 7, length(value), value
        }
        printf "quit\r\n"
    }' < /dev/null
}
store 1 2000 | ask | sort | uniq -c
for n in $(seq 1 20); do printf 'get key%d\r\n' $((n * 97)); done | sed '$aquit\r' | ask | digest
{
    printf 'set n 0 0 1\r\n5\r\nincr n 37\r\ndecr n 2\r\nappend n 0 0 3\r\n!!!\r\n'
    printf 'get n\r\ndelete n\r\nget n\r\nquit\r\n'
} | ask
# Only a part of these fits into 8 MiB.
store 1 12000 | ask | sort | uniq -c
printf 'get key12000\r\nquit\r\n' | ask | digest
printf 'stats\r\nquit\r\n' | ask | awk '
    $2 == "evictions" { print ($3 > 0) ? "evicted" : "kept" }
    $2 == "threads" { print $2, $3 }'
kill "$(cat pid)"
wait
