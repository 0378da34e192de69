import sys
import unittest

from on import command, run, succeed


class Module(unittest.TestCase):
    def test_statistics_move_with_the_program(self):
        run("""
            import ebbmalloc
            before = ebbmalloc.stats()
            kept = bytearray(100_000_000)
            after = ebbmalloc.stats()
            assert after["live_bytes"] - before["live_bytes"] >= 100_000_000
            assert after["large_blocks"] > before["large_blocks"]
            assert after["classes"][0].keys() == ebbmalloc.ClassStats.__annotations__.keys()
            assert after.keys() == ebbmalloc.Stats.__annotations__.keys()
        """)

    def test_trim_gives_back(self):
        run("""
            import ebbmalloc
            kept = [bytes(1000) for _ in range(50_000)]
            del kept[:-1]
            assert ebbmalloc.trim()
            assert ebbmalloc.stats()["dirty_bytes"] == 0
            assert ebbmalloc.idle() in (True, False)
        """)

    def test_why_is_told_in_parts(self):
        run("""
            import ebbmalloc
            kept = [bytes(1000) for _ in range(50_000)]
            why = ebbmalloc.why()
            small = next(line for line in why.lines if line.label == "small blocks in use")
            assert small.bytes > 50_000_000 and small.percent > 50 and small.meaning
            assert why.lines[-1].label == "not ebbmalloc's"
            assert 95 < sum(line.percent for line in why.lines) < 105
            first = why.conclusions[0]
            assert "50,0" in first and "1152 bytes" in first, why.conclusions
            assert str(why).startswith(str(why.text)) and "pymalloc" in why.text
        """)

    def test_who_holds_objects(self):
        hoard = """
            import ebbmalloc
            kept = [float(n) for n in range(1_000_000)]
            arenas = ebbmalloc.why().pymalloc
            assert {}, arenas
        """
        run(hoard.format("arenas.arena_bytes >= arenas.object_bytes > 24_000_000"))
        without = "arenas is None and 'no pymalloc arenas' in ebbmalloc.why().text"
        run(hoard.format(without), "--objects")

    def test_standard_error_survives_a_look(self):
        look = "import ebbmalloc, sys; ebbmalloc.why(); print('still there', file=sys.stderr)"
        self.assertEqual(command(sys.executable, "-c", look).stderr, "still there\n")

    def test_nothing_happens_where_it_is_not_active(self):
        succeed(command(sys.executable, "-c", "\n".join((
            "import ebbmalloc",
            "assert not ebbmalloc.is_active() and ebbmalloc.stats() is None",
            "assert not ebbmalloc.trim() and not ebbmalloc.idle()",
            "why = ebbmalloc.why()",
            "assert why.lines == () and 'python -m ebbmalloc run' in why.text and why.pymalloc",
        ))))

    # The library's symbols are present, but malloc is not the library's.
    def test_it_is_not_active_behind_another_malloc(self):
        library = succeed(command(sys.executable, "-m", "ebbmalloc", "library")).strip()
        succeed(command(sys.executable, "-c", "\n".join((
            "import ctypes",
            f"ctypes.CDLL({library!r}, mode=ctypes.RTLD_GLOBAL)",
            "import ebbmalloc",
            "assert not ebbmalloc.is_active()",
        ))))
