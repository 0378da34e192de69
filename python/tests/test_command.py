import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from on import CLEAN, command, exit_statistics, module, succeed

EBB = Path(sys.executable).parent / "ebb"
ACTIVE = "import ebbmalloc; print(ebbmalloc.is_active())"


class Command(unittest.TestCase):
    def test_run_passes_arguments_and_exit_code(self):
        with tempfile.TemporaryDirectory() as folder:
            app = Path(folder) / "app.py"
            app.write_text(
                "import sys, ebbmalloc; print(ebbmalloc.is_active(), sys.argv[1:]); sys.exit(7)"
            )
            result = module("run", app, "--stats", "-x", "a b")
        self.assertEqual((result.returncode, result.stdout), (7, "True ['--stats', '-x', 'a b']\n"))

    def test_run_takes_what_python_takes(self):
        self.assertEqual(succeed(module("run", "-O", "-c", "print(__debug__)")), "False\n")
        self.assertIn(
            "[1, 2]", succeed(module("run", "-m", "timeit", "-n1", "-r1", "print([1, 2])"))
        )

    def test_ebb_finds_the_library(self):
        self.assertEqual(succeed(command(EBB, "run", "--", sys.executable, "-c", ACTIVE)), "True\n")

    def test_the_library_can_be_preloaded(self):
        library = succeed(module("library")).strip()
        self.assertEqual(
            succeed(command(sys.executable, "-c", ACTIVE, LD_PRELOAD=library)), "True\n"
        )

    def test_exit_statistics_prove_it(self):
        result = module(
            "run", "--mode", "slot", "-c", "x = bytearray(50_000_000)", EBB_STATS="json"
        )
        statistics = exit_statistics(result)
        self.assertEqual(statistics["mode"], "slot")
        self.assertGreater(statistics["peak_bytes"], 50_000_000)
        self.assertRegex(
            module("run", "--stats", "--mode=slot", "-c", "0").stderr, r"ebbmalloc: \S+ mode slot "
        )

    def test_run_takes_options(self):
        told = "import ebbmalloc; print(ebbmalloc.stats()['limit_bytes'] >> 20)"
        options = ("--limit", "64M", "--set", "purge_delay=1s", "--set=huge=never")
        self.assertEqual(succeed(module("run", *options, "-c", told)), "63\n")

    def test_objects_are_on_it_if_wanted(self):
        million = ("-c", "x = [float(n) for n in range(1_000_000)]")
        without = exit_statistics(module("run", *million, EBB_STATS="json"))["peak_bytes"]
        result = module("run", "--objects", *million, EBB_STATS="json")
        with_objects = exit_statistics(result)["peak_bytes"]
        self.assertGreater(with_objects - without, 20_000_000)

    def test_why_tells_arenas_of_python_apart(self):
        hoard = (
            "import sys; x = [float(n) for n in range(1_000_000)]; "
            "print('ready', flush=True); sys.stdin.read()"
        )
        for options, arenas in (([], True), (["--objects"], False)):
            words = [sys.executable, "-m", "ebbmalloc", "run", *options, "-c", hoard]
            with subprocess.Popen(
                words, env=CLEAN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as waiting:
                self.assertEqual(waiting.stdout.readline(), "ready\n")
                told = json.loads(succeed(module("why", "--json", waiting.pid)))
                waiting.stdin.close()
            lines = {line["name"]: line["bytes"] for line in told["lines"]}
            self.assertLess(lines["other_anonymous"], 4_000_000)
            if arenas:
                self.assertGreater(lines["pymalloc_arenas"], 24_000_000)
                self.assertIn("PYTHONMALLOC=malloc puts", " ".join(told["conclusions"]))
            else:
                self.assertEqual(lines["pymalloc_arenas"], 0)

    def test_why_runs_a_program(self):
        told = succeed(module("why", "--at-end", "-c", "x = bytearray(30_000_000)"))
        self.assertIn("ebbmalloc 0.", told)

    def test_mistakes_are_told(self):
        for words in (["run"], ["run", "--objects"], ["wyh", "1"], ["why"]):
            result = module(*words)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn("usage: python -m ebbmalloc", result.stderr)
        self.assertIn("usage", succeed(module("--help")))
        self.assertEqual(module("run", "no-such-file.py").returncode, 2)

    # The types are correct, and mypy, a real program with compiled modules, runs on ebbmalloc.
    def test_mypy_checks_the_package(self):
        mypy = EBB.parent / "mypy"
        if not mypy.exists():
            self.skipTest("mypy is not installed")
        with tempfile.TemporaryDirectory() as folder:
            caller = Path(folder) / "caller.py"
            caller.write_text(
                "import ebbmalloc\ns = ebbmalloc.stats()\nassert s\nn: int = s['live_bytes']\n"
            )
            checked = [mypy, "--strict", "--cache-dir=/dev/null"]
            # mypy ends by _exit, which prints no statistics, but `ebb why` sees the process.
            result = command(EBB, "why", "--json", "--", *checked, "-p", "ebbmalloc")
            self.assertEqual(len(json.loads(succeed(result))["heaps"]), 1)
            self.assertIn("no issues found", result.stderr)
            self.assertIn("no issues found", succeed(command(*checked, caller)))
            caller.write_text("import ebbmalloc\nn: str = ebbmalloc.stats()['live_bytes']\n")
            self.assertIn("not indexable", command(*checked, caller).stdout)
