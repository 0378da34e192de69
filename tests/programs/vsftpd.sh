# An FTP server with a limit of address space and a seccomp filter: logins, lists, downloads.
# packages: vsftpd curl
# also: harden
# version: vsftpd -v 0>&1
. "$(dirname "$0")/on.sh"
PATH=$PATH:/usr/sbin

port=$((20000 + $$ % 10000))
mkdir -p files/deeper empty
seq 100000 > files/numbers
seq 1000 | split -l 10 - files/deeper/part-
chmod -R a-w files
# Its sessions change to the user `nobody` and to these directories.
for directory in "$PWD" "$PWD/files" "$PWD/empty"; do
    while [ "$directory" != / ]; do
        [ -x "$directory" ] && chmod a+x "$directory" 2> /dev/null || true
        directory=$(dirname "$directory")
    done
done
cat > vsftpd.conf <<CONF
listen=YES
listen_address=127.0.0.1
listen_port=$port
background=NO
anonymous_enable=YES
local_enable=NO
anon_root=$PWD/files
secure_chroot_dir=$PWD/empty
xferlog_enable=NO
CONF
[ "$(id -u)" = 0 ] || echo run_as_launching_user=YES >> vsftpd.conf

fetch=(curl --silent --show-error --max-time 60 --user anonymous:)
# Sends commands to the server without a client, and prints its answers from the second on.
say() {
    exec 5<> "/dev/tcp/127.0.0.1/$port"
    for line in "USER anonymous" "PASS none" "$@" QUIT; do
        read -r answer <&5
        echo "$answer"
        printf '%s\r\n' "$line" >&5
    done | tail -n +2
    cat <&5
    exec 5>&-
}
trap 'kill $server 2> /dev/null || true' EXIT
# Without statistics, which its sessions would write to the connection at exit.
serve() {
    (
        unset EBB_STATS
        LD_PRELOAD=$LIBRARY exec vsftpd "$PWD/vsftpd.conf" "-oseccomp_sandbox=$1"
    ) >> log 2>&1 &
    server=$!
    for attempt in $(seq 100); do
        (exec 5<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null && break
        sleep 0.1
    done
    [ -z "$LIBRARY" ] || grep -q -F "$LIBRARY" "/proc/$server/maps" ||
        echo "the server is not on the library"
}
stop() {
    kill $server
    wait $server || echo "ended with $?"
}

# Debian's filter kills for calls that its glibc makes during a download, with any allocator.
serve YES
for attempt in $(seq 2); do
    say PWD "CWD deeper" PWD SYST "CWD /none" NOOP
done
stop
serve NO
on "${fetch[@]}" "ftp://127.0.0.1:$port/numbers" | digest
"${fetch[@]}" --list-only "ftp://127.0.0.1:$port/deeper/" | sort | digest
for attempt in $(seq 3); do
    "${fetch[@]}" "ftp://127.0.0.1:$port/deeper/part-a[a-e]"
done | digest
"${fetch[@]}" --upload-file log "ftp://127.0.0.1:$port/new" 2> /dev/null ||
    echo "nothing may be written"
stop
