import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from on import command, exit_statistics, succeed

SOURCE = Path(__file__).parents[2] / "examples/embed.c"
# The embedded Python finds the module there.
PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))
HOARD = """
import ebbmalloc
kept = bytearray(50_000_000)
assert ebbmalloc.is_active() and ebbmalloc.stats()["live_bytes"] > len(kept)
"""


class Embedding(unittest.TestCase):
    def test_the_shared_library_linked_first(self):
        self.link("libebbmalloc.so", "-Wl,--no-as-needed")

    def test_the_static_library_linked_first(self):
        self.link("libebbmalloc.a", "-rdynamic", "-Wl,--undefined=malloc")

    # As docs/python.md has it.
    def link(self, name, *options):
        folder = os.environ.get("EBB_RELEASE")
        if folder is None:
            self.skipTest("EBB_RELEASE names no folder of built libraries")
        config = ["/usr/bin/python3-config", "--embed", "--includes", "--ldflags"]
        flags = shlex.split(subprocess.run(config, capture_output=True, text=True, check=True).stdout)
        with tempfile.TemporaryDirectory() as work:
            program = Path(work) / "embed"
            library = Path(folder) / name
            succeed(command("cc", *options, SOURCE, "-o", program, library, *flags))
            path = {"LD_LIBRARY_PATH": folder, "PYTHONPATH": PACKAGES}
            result = command(program, HOARD, EBB_STATS="json", **path)
            succeed(result)
            self.assertGreater(exit_statistics(result)["peak_bytes"], 50_000_000)
