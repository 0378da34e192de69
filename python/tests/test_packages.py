import importlib.util
import sys
import unittest

from on import command, exit_statistics, module, succeed

# The program prints results that must be the same on any allocator.
NUMPY = """
import numpy, threading
def work(seed):
    source = numpy.random.default_rng(seed)
    for _ in range(5):
        many = source.standard_normal((300, 300))
        total = numpy.sort(many @ many.T, axis=None)[::1000].round(3).sum()
    results[seed] = total
results = {}
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
kept = numpy.zeros(5_000_000) + 1
print([round(results[seed], 1) for seed in range(4)], kept.sum(), kept[::7].copy().sum())
"""
PANDAS = """
import io, numpy, pandas
rows = 100_000
source = numpy.random.default_rng(1)
table = pandas.DataFrame({
    "customer": [f"customer {n}" for n in source.integers(0, 3000, rows)],
    "amount": source.integers(1, 1000, rows),
    "day": pandas.Timestamp("2024-01-01")
        + pandas.to_timedelta(source.integers(0, 365, rows), unit="D"),
})
table = pandas.read_csv(io.StringIO(table.to_csv(index=False)), parse_dates=["day"])
best = table.groupby("customer")["amount"].agg(["sum", "count"])
best = best.sort_values(["sum", "count"]).tail(3)
months = table.set_index("day")["amount"].resample("MS").sum()
joined = table.merge(best, left_on="customer", right_index=True)
print(best.to_string(), months.tolist(), len(joined), table["customer"].str.upper().nunique())
"""


class Packages(unittest.TestCase):
    def test_numpy(self):
        self.compare("numpy", NUMPY)

    def test_pandas(self):
        self.compare("pandas", PANDAS)

    # The result is the same as without ebbmalloc, and ebbmalloc served the arrays.
    def compare(self, package, program):
        if importlib.util.find_spec(package) is None:
            self.skipTest(f"{package} is not installed")
        plain = succeed(command(sys.executable, "-c", program))
        for options in ([], ["--objects"]):
            result = module("run", *options, "-c", program, EBB_STATS="json")
            self.assertEqual(succeed(result), plain)
            self.assertGreater(exit_statistics(result)["peak_bytes"], 20_000_000)
