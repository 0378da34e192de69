# Python with object graphs, JSON and threads, on its small-block allocator and on plain malloc.
# packages: python3
# also: harden
# version: python3 --version
. "$(dirname "$0")/on.sh"

for allocator in default malloc; do
    echo "allocator: $allocator"
    export PYTHONMALLOC=$allocator
    on python3 - <<'PYTHON'
import collections, hashlib, json, threading

def work(results, seed):
    words = [f"word {seed * i % 997}" for i in range(5000)]
    counts = collections.Counter(words)
    tree = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
    text = json.dumps([counts, tree], sort_keys=True)
    assert json.loads(text) == [counts, tree]
    results[seed] = hashlib.sha256(text.encode()).hexdigest()[:16]

results = {}
threads = [threading.Thread(target=work, args=(results, seed)) for seed in range(1, 7)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(results.items()))
PYTHON
done
