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

    def test_options_change_while_it_runs(self):
        run("""
            import ebbmalloc
            assert ebbmalloc.set("limit", "200MB")
            assert 199_000_000 < ebbmalloc.stats()["limit_bytes"] <= 200_000_000
            try:
                kept = bytearray(300_000_000)
            except MemoryError:
                pass
            else:
                raise AssertionError
            assert ebbmalloc.stats()["refusals"] == 1
            assert ebbmalloc.set("limit", False) and bytearray(300_000_000)
            for wrong in (("limit", "much"), ("limits", "1G"), ("harden", True)):
                try:
                    ebbmalloc.set(*wrong)
                except ValueError:
                    continue
                raise AssertionError(wrong)
        """)

    def test_run_takes_options(self):
        told = "import ebbmalloc; print(ebbmalloc.stats()['limit_bytes'] >> 20)"
        for arguments, variables, limit in (
            ('limit="64MiB", huge="never"', {}, 63),
            ('limit="64MiB"', {"EBB_LIMIT": "32M"}, 31),
            ('limit="64MiB", fixed=True', {"EBB_LIMIT": "32M"}, 63),
        ):
            call = f"ebbmalloc.run('-c', {told!r}, {arguments})"
            start = f"import ebbmalloc; raise SystemExit({call})"
            result = command(sys.executable, "-c", start, **variables)
            self.assertEqual(succeed(result), f"{limit}\n")
        wrong = "import ebbmalloc; raise SystemExit(ebbmalloc.run('-c', '0', limit='much'))"
        self.assertEqual(command(sys.executable, "-c", wrong).returncode, 78)

    def test_metrics_are_text(self):
        run("""
            import ebbmalloc, os
            text = ebbmalloc.metrics()
            assert "# TYPE ebbmalloc_live_bytes gauge" in text and "EOF" not in text
            assert f'pid="{os.getpid()}"' in text
            assert ebbmalloc.metrics(openmetrics=True).endswith("# EOF\\n")
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
