# Much of CPython's own test suite on plain malloc, and some of it on its small-block allocator.
# packages: python3 libpython3.11-testsuite
# also: harden
# version: python3 --version
# timeout: 900
# when: long
. "$(dirname "$0")/on.sh"

# Without tests that wait or measure time, because busy machines are too slow for some.
all="test_json test_re test_dict test_list test_deque test_bytes test_unicode test_array
    test_itertools test_functools test_collections test_struct test_zlib test_thread test_gc
    test_generators test_copy test_memoryview test_mmap test_exceptions test_atexit test_fork1
    test_threading test_ast test_bz2 test_builtin test_class test_cmath test_codecs
    test_compile test_complex test_configparser test_contextlib test_coroutines test_csv
    test_ctypes test_dataclasses test_datetime test_decimal test_descr test_difflib test_email
    test_enum test_fileio test_float test_format test_fractions test_frozen test_fstring
    test_hashlib test_heapq test_html test_http_cookies test_inspect test_int test_io
    test_logging test_long test_lzma test_marshal test_math test_memoryio test_minidom
    test_operator test_optparse test_ordered_dict test_os test_pathlib test_pickle
    test_plistlib test_posix test_pprint test_property test_random test_set test_shelve
    test_shutil test_slice test_sort test_statistics test_string test_sys test_tarfile
    test_tempfile test_textwrap test_threading_local test_tokenize test_traceback
    test_tracemalloc test_tuple test_types test_typing test_unittest test_urllib test_userdict
    test_uuid test_weakref test_weakset test_xml_etree test_xml_etree_c test_yield_from
    test_zipfile"
some="test_json test_dict test_bytes test_gc test_threading"

# Some tests start Python and expect nothing else on its standard error.
suite() {
    EBB_STATS='' on python3 -m test --quiet "$@" > log 2>&1 ||
        { grep -v '^OK' log | tail -n 60; exit 1; }
    grep -E '^(Result|Tests result)|^== .*result' log
}

on python3 -c 'print("ready")'
# The ignored tests allow a tenth of a second.
PYTHONMALLOC=malloc suite -j 3 --ignore '*denial_of_service*' --ignore '*anchor_at_beginning*' $all
PYTHONMALLOC=default suite -j 3 $some
suite test_subprocess --match '*POSIXProcessTestCase*'
