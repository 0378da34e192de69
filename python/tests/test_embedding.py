import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from on import command, exit_statistics, succeed

SOURCE = Path(__file__).parents[2] / "examples/embed_python.c"
# The prefix of `cargo xtask install --prefix`.
PREFIX = os.environ.get("EBB_TEST_PREFIX")
# The embedded Python finds the module there.
PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))
HOARD = """
import ebbmalloc
kept = bytearray(50_000_000)
assert ebbmalloc.is_active() and ebbmalloc.stats()["live_bytes"] > len(kept)
"""


# The commands of docs/python.md.
@unittest.skipIf(PREFIX is None, "EBB_TEST_PREFIX names no installed tree")
class Embedding(unittest.TestCase):
    def test_one_object_linked_first(self):
        self.link("-rdynamic", SOURCE, f"{PREFIX}/lib/ebbmalloc.o")

    def test_the_static_library_linked_first(self):
        self.link("-rdynamic", "-Wl,--undefined=malloc", SOURCE, f"{PREFIX}/lib/libebbmalloc.a")

    def test_the_shared_library_linked_first(self):
        library = f"{PREFIX}/lib"
        self.link(
            "-Wl,--no-as-needed", SOURCE, f"-L{library}", f"-Wl,-rpath,{library}", "-lebbmalloc"
        )

    def link(self, *words):
        config = ["/usr/bin/python3-config", "--embed", "--includes", "--ldflags"]
        flags = shlex.split(
            subprocess.run(config, capture_output=True, text=True, check=True).stdout
        )
        with tempfile.TemporaryDirectory() as work:
            program = Path(work) / "embed"
            succeed(command("cc", *words, "-o", program, *flags))
            result = command(program, HOARD, EBB_STATS="json", PYTHONPATH=PACKAGES)
            succeed(result)
            self.assertGreater(exit_statistics(result)["peak_bytes"], 50_000_000)
