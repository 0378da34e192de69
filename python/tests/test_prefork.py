import importlib.util
import sys
import unittest


class Prefork(unittest.TestCase):
    # On glibc, the worker has 147 MB of its own when it has dropped what it inherited, since free
    # writes into the blocks; on ebbmalloc 10 MB. The bound leaves room for another Python.
    def test_a_worker_shares_what_it_inherited(self):
        if importlib.util.find_spec("gunicorn") is None:
            self.skipTest("gunicorn is not installed")
        from prefork import private_bytes

        for request, found in private_bytes(sys.executable, "-m", "ebbmalloc", "run").items():
            self.assertLess(found, 60_000_000, request)
