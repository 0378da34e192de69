# OpenSSH's server under its own seccomp filter: logins with keys, a file by sftp, a refused login.
# packages: openssh-server openssh-client
# also: harden
# version: sshd -V
. "$(dirname "$0")/on.sh"
PATH=$PATH:/usr/sbin

port=$((20000 + $$ % 10000))
# The server changes to this directory before authentication.
[ "$(id -u)" = 0 ] && mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f host
for type in ed25519 ecdsa; do
    ssh-keygen -q -t $type -N '' -f key_$type
done
ssh-keygen -q -t ed25519 -N '' -f stranger
cat key_*.pub > authorized
cat > sshd_config <<CONF
Port $port
ListenAddress 127.0.0.1
HostKey $PWD/host
AuthorizedKeysFile $PWD/authorized
PidFile $PWD/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
Compression yes
AcceptEnv WORD
Subsystem sftp internal-sftp
CONF
options=(-F /dev/null -o Port=$port -o StrictHostKeyChecking=no
    -o UserKnownHostsFile="$PWD/known" -o BatchMode=yes -o LogLevel=ERROR -o IdentitiesOnly=yes)
login() { ssh -n "${options[@]}" -i "$1" "${@:2}"; }

# By its absolute path, because it executes itself again for each connection. Without statistics,
# whose system calls at exit the filter on its children would kill for; the client's show the mode.
(
    unset EBB_STATS
    LD_PRELOAD=$LIBRARY exec "$(command -v sshd)" -D -e -f "$PWD/sshd_config"
) 2> log &
trap 'kill $! 2> /dev/null || true' EXIT
for attempt in $(seq 100); do
    [ -e sshd.pid ] && break
    sleep 0.1
done
[ -z "$LIBRARY" ] || grep -q -F "$LIBRARY" "/proc/$(cat sshd.pid)/maps" ||
    echo "the server is not on the library"
for type in ed25519 ecdsa; do
    login key_$type 127.0.0.1 echo "by $type" || echo "no login by $type"
done
on ssh -n "${options[@]}" -i key_ed25519 -C 127.0.0.1 'seq 200000' | digest
WORD=sent login key_ed25519 -o SendEnv=WORD 127.0.0.1 'echo "$WORD"; exit 7' || echo "exit $?"
seq 100000 > file
echo "put file copy" | sftp -q "${options[@]}" -i key_ecdsa -b - 127.0.0.1:"$PWD" > /dev/null
digest < copy
login stranger 127.0.0.1 echo in 2> /dev/null || echo "a stranger is refused"
kill "$(cat sshd.pid)"
wait
