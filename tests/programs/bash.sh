# bash with loops, arrays, strings, substitutions, subshells and pipes.
# packages: bash
# also: harden
# version: bash --version
. "$(dirname "$0")/on.sh"

on bash <<'BASH'
set -eu
declare -A count
declare -a list
for ((i = 0; i < 30000; i++)); do
    key=k$((i * 31 % 211))
    count[$key]=$((${count[$key]:-0} + i))
    ((i % 10)) || list+=("$key:${count[$key]}")
done
echo "keys: ${#count[@]}, list: ${#list[@]}, last: ${list[-1]}"
echo "sorted: $(printf '%s\n' "${!count[@]}" | sort | tr '\n' ' ' | cut -c 1-60)"

text=
for word in "${list[@]:0:800}"; do text+="${word//k/K} "; done
echo "text: ${#text}, upper: ${#text}, cut: ${text:100:40}"
text=${text^^}
echo "replaced: ${text//[0-9]/#}" | cksum

for i in {1..60}; do
    (
        local_list=("${list[@]:i:50}")
        echo "${#local_list[@]} $i"
    )
done | sort -n | tail -n 1
recurse() { (($1 == 0)) && echo bottom || recurse $(($1 - 1)); }
recurse 400
while read -r line; do
    echo "$line"
done < <(for i in {1..2000}; do echo "line $i $((i * i))"; done) | cksum
BASH
