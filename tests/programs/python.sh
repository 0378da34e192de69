# Python with object graphs, and a part of its own test suite; on its small-block allocator and on plain malloc.
# packages: python3 libpython3.11-testsuite
# timeout: 240
. "$(dirname "$0")/on.sh"

all="test_json test_re test_dict test_list test_deque test_bytes test_unicode test_array test_itertools
    test_functools test_collections test_struct test_zlib test_thread test_gc test_generators test_copy
    test_memoryview test_mmap test_exceptions test_atexit test_fork1 test_threading"
some="test_json test_dict test_bytes test_gc test_threading"

# Some of the tests start Python and want its standard error to themselves.
suite() {
    EBB_STATS='' on python3 -m test --quiet "$@" > log 2>&1 || { tail -n 40 log; exit 1; }
    grep -E '^(Result|Tests result)|^== .*result' log
}

for allocator in default malloc; do
    echo "allocator: $allocator"
    export PYTHONMALLOC=$allocator
    on python3 - <<'PYTHON'
import collections, hashlib, json, threading

def work(results, seed):
    words = [f"word {seed * i % 997}" for i in range(20000)]
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
    case $allocator in
        malloc) suite -j 3 $all ;;
        default) suite -j 3 $some ;;
    esac
done
suite test_subprocess --match '*POSIXProcessTestCase*'
