# rsync between two directories, with differences, deletions, compression and checksums.
# packages: rsync
# also: check harden
# version: rsync --version
. "$(dirname "$0")/on.sh"

mkdir -p from/{a,b,c}/{d,e}
for n in $(seq 200); do
    seq "$n" $((n * 9)) > from/"$( ((n % 2)) && echo a/d || echo b/e)"/file"$n"
done
find from -exec touch -d @1500000000 {} +
on rsync -a --stats from/ to/ | grep -E '^Number of (files|regular files transferred)'
for n in $(seq 1 7 200); do [ -f from/a/d/file"$n" ] && echo changed >> from/a/d/file"$n"; done
rm from/b/e/file1*
find from -exec touch -d @1600000000 {} +
on rsync -az --checksum --no-whole-file --delete --itemize-changes from/ to/ | sort | digest
diff -r from to && echo "the same"
on rsync -a --link-dest="$PWD/to" from/ backup/
diff -r from backup && echo "the same again"
