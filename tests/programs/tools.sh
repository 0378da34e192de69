# The tools that every script uses, on data of some size: sort, awk, tar, xz, gzip, grep, sed, diff.
# packages: xz-utils tar gzip coreutils mawk grep sed diffutils
# also: harden
# version: sort --version
. "$(dirname "$0")/on.sh"

seq 1 60000 | on awk '{
    print ($1 * 7919) % 1000003, "line", $1, substr("abcdefghijklmnop", $1 % 10, 5) }' > data
digest < data
on sort --parallel=4 --buffer-size=1M -k4,4 -k1,1n data | digest
on sort -n data > sorted
on awk '{ count[$4] += $1 } END { for (key in count) print key, count[key] }' data | sort
on grep -c -E '(77|88)[0-9]+ line .*[aeiou]$' data
on sed -E 's/([0-9]+) line ([0-9]+)/\2 \1/' data | digest
(on diff <(head -n 5000 data) <(head -n 5000 sorted) || true) | digest

mkdir tree
split -l 500 data tree/part
on tar --sort=name --owner=0 --group=0 --mtime=@0 -cf tree.tar tree
on xz -T2 -1 -k tree.tar
on xz -dc tree.tar.xz | cmp - tree.tar && echo "xz: the same again"
on gzip -nk tree.tar
on gzip -dc tree.tar.gz | cmp - tree.tar && echo "gzip: the same again"
mkdir out
on tar -xf tree.tar.xz -C out
diff -r tree out/tree && echo "tar: the same again"
