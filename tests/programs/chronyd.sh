# chronyd under its own seccomp filter, which kills: a server and a client, neither sets the clock.
# packages: chrony
# when: long
# version: chronyd --version
. "$(dirname "$0")/on.sh"
PATH=$PATH:/usr/sbin

port=$((20000 + $$ % 10000))
for role in server client; do
    printf 'cmdport 0\nbindcmdaddress %s/%s.sock\npidfile %s/%s.pid\nuser %s\n' \
        "$PWD" $role "$PWD" $role "$(id -un)" > $role.conf
done
printf 'port %s\nlocal stratum 8\nallow 127.0.0.1\nbindaddress 127.0.0.1\n' $port >> server.conf
printf 'port 0\nserver 127.0.0.1 port %s iburst maxsamples 1\n' $port >> client.conf
# Without statistics, whose system calls at exit the filter would kill for.
(
    unset EBB_STATS
    LD_PRELOAD=$LIBRARY exec chronyd -F 1 -d -x -f "$PWD/server.conf"
) > log 2>&1 &
server=$!
trap 'kill $server 2> /dev/null || true' EXIT
for attempt in $(seq 100); do
    grep -q 'seccomp filter' log && break
    sleep 0.1
done
[ -z "$LIBRARY" ] || grep -q -F "$LIBRARY" "/proc/$server/maps" ||
    echo "the server is not on the library"
on chronyd -Q -t 20 -f "$PWD/client.conf" 2>&1 | grep '^ebbmalloc' >&2 || true
grep -c 'seccomp filter' log
kill $server
wait $server
echo "ended with $?"
