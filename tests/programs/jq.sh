# jq on JSON: read, searched, grouped, changed and written.
# packages: jq
# also: check harden
# version: jq --version
. "$(dirname "$0")/on.sh"

on jq -n -c 'range(3000) | {id: ., name: "item \(. * 31 % 997)", tags: [range(. % 5) | tostring],
    nested: {a: {b: .}}}' > items
digest < items
on jq -s -c 'group_by(.name) | map({name: .[0].name, count: length, sum: (map(.id) | add)})
    | sort_by(-.sum) | .[:3]' items
on jq -s '[.[] | select(.tags | index("3")) | .nested.a.b] | add' items
on jq -r 'select(.id % 100 == 0) | .name | gsub("(?<d>[0-9]+)"; "<\(.d)>")
    | ascii_upcase' items | digest
on jq -s -c 'map(paths) | unique | length' items
on jq -n -c 'reduce range(2000) as $i ({}; .["key\($i % 300)"] += $i) | to_entries | length'
