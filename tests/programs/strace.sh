# strace of programs with children and threads, itself on the library as well.
# packages: strace xz-utils
# also: check harden
# version: strace --version
# when: long
. "$(dirname "$0")/on.sh"

seq 30000 > data
on strace -f -o trace sh -c 'sort -R --random-source=data data | sort -n | cksum; ls / > /dev/null'
grep -c 'exited with 0' trace
on strace -f -o trace -e trace=execve,exit_group xz -T4 -k data
xz -dc data.xz | cmp - data && echo "the same again"
on strace -c -o counts true
grep -q execve counts && echo counted
