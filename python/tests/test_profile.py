import sys
import tempfile
import unittest
from pathlib import Path

from on import command, run, succeed


def ebb_profile(*words):
    """Runs `ebb profile`, and returns what it prints."""
    start = "import sys; from ebbmalloc.__main__ import ebb; sys.argv[1:] = {}; ebb()"
    return succeed(command(sys.executable, "-c", start.format(["profile", *map(str, words)])))


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "app.heap"

    def test_what_is_held_is_in_the_file(self):
        run(f"""
            from ebbmalloc import profile
            with profile.record({str(self.file)!r}, 10_000):
                kept = [bytearray(100_000) for _ in range(300)]
                [bytearray(100_000) for _ in range(300)]
        """)
        first = self.file.read_text().splitlines()[0]
        self.assertRegex(first, r"^heap profile: .* @ heap_v2/10000$")
        table = ebb_profile(self.file)
        self.assertIn("PyByteArray", table)
        # Each of these blocks is sampled, all but one in 20,000.
        self.assertRegex(table.splitlines()[0], r"\b(28|29)\.\d MiB live")

    def test_it_begins_ends_and_begins_anew(self):
        run(f"""
            from ebbmalloc import profile
            for path, error in (({str(self.file)!r}, 22), ("/no/such/folder", 5)):
                try:
                    profile.write(path)
                    assert False
                except OSError as raised:
                    assert raised.errno == error, raised
                assert profile.start()
            for _ in range(20):
                assert profile.start(names=True)
                kept = [bytearray(n) for n in range(3000)]
                assert profile.stop() and profile.write({str(self.file)!r})
            try:
                profile.start(0)
                assert False
            except ValueError:
                pass
        """)

    def test_a_failing_program_leaves_no_file(self):
        run(f"""
            from ebbmalloc import profile
            try:
                with profile.record({str(self.file)!r}):
                    raise KeyError
            except KeyError:
                pass
        """)
        self.assertFalse(self.file.exists())

    @unittest.skipIf(sys.version_info < (3, 12), "before 3.12, Python does not tell its functions")
    def test_python_functions_have_names(self):
        run(f"""
            from ebbmalloc import profile
            def hoard():
                return [bytearray(100_000) for _ in range(300)]
            def caller():
                return hoard()
            with profile.record({str(self.file)!r}):
                kept = caller()
        """)
        folded = self.file.with_suffix(".folded")
        ebb_profile("-o", folded, self.file)
        self.assertRegex(folded.read_text(), "py::caller:.*;py::hoard:.*;bytearray___init__;")

    def test_nothing_happens_where_it_is_not_active(self):
        succeed(command(sys.executable, "-c", "\n".join((
            "from ebbmalloc import profile",
            "assert not profile.start() and not profile.stop()",
            f"with profile.record({str(self.file)!r}): pass",
            f"assert not profile.write({str(self.file)!r})",
        ))))
        self.assertFalse(self.file.exists())
