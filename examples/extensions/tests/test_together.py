"""Tests several copies of ebbmalloc in one process: in extensions, and a preloaded one.

EXTENSIONS is the folder that `cargo xtask examples` builds into; RELEASE has the command and the
library.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

EXTENSIONS, RELEASE = Path(os.environ["EXTENSIONS"]), Path(os.environ["RELEASE"])
PRELOADED = {"LD_PRELOAD": str(RELEASE / "libebbmalloc.so")}

# Two extensions with separate allocators: copies of a file are different libraries.
LOAD = """
import importlib.util, os, sys, threading
def load(folder):
    spec = importlib.util.spec_from_file_location("words_python", f"{folder}/words_python.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
first, second = load("first"), load("second")
text = first.sample(3000)
right = second.followers(text)
assert len(right) > 1000
"""
THREADS = """
def work():
    for _ in range(5):
        assert first.followers(text) == second.followers(text) == right
def together(count):
    threads = [threading.Thread(target=work) for _ in range(count)]
    [thread.start() for thread in threads]
    return threads
"""


class Together(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("first", "second"):
            (self.folder / name).mkdir()
            shutil.copy(EXTENSIONS / "with/words_python.so", self.folder / name)
        shutil.copy(EXTENSIONS / "with/words_node.node", self.folder)

    # Starts a program with the extensions, without and with the preloaded library.
    def programs(self, code, program=(sys.executable, "-c")):
        for environment in ({}, PRELOADED):
            with self.subTest(preloaded=bool(environment)):
                yield subprocess.Popen(
                    [*program, textwrap.dedent(code)],
                    cwd=self.folder,
                    env=os.environ | environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                ), len(environment)

    def succeed(self, code, **how):
        for running, _ in self.programs(code, **how):
            out, err = running.communicate(timeout=120)
            self.assertEqual(running.returncode, 0, out + err)

    def test_threads_come_and_go(self):
        self.succeed(
            LOAD + THREADS + "for _ in range(10): [thread.join() for thread in together(6)]"
        )

    # More copies than glibc reserves thread-local memory for, in less address space than the copies
    # would need if each took a share for itself.
    def test_ten_copies_in_8_gb(self):
        for name in range(8):
            (self.folder / str(name)).mkdir()
            shutil.copy(EXTENSIONS / "with/words_python.so", self.folder / str(name))
        self.succeed(
            "import resource; resource.setrlimit(resource.RLIMIT_AS, (8000000 << 10,) * 2)"
            + LOAD
            + """
others = [load(str(name)) for name in range(8)]
def work():
    assert all(other.followers(text) == right for other in others)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
        )

    def test_fork_while_threads_work(self):
        self.succeed(LOAD + THREADS + """
for _ in range(10):
    threads = together(3)
    child = os.fork()
    if child == 0:
        work()
        [thread.join() for thread in together(2)]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    [thread.join() for thread in threads]
""")

    def test_every_heap_is_seen(self):
        for running, preloaded in self.programs(
            LOAD + "print('ready', flush=True); sys.stdin.read()"
        ):
            self.assertEqual(running.stdout.readline(), "ready\n")
            why = [RELEASE / "ebb", "why", "--json", str(running.pid)]
            seen = subprocess.run(why, capture_output=True, text=True, check=True)
            report = json.loads(seen.stdout)
            self.assertEqual(len(report["heaps"]), 2 + preloaded)
            self.assertLess(abs(report["accounted_bytes"] / report["resident_bytes"] - 1), 0.02)
            text = subprocess.run(
                why[:2] + why[3:], capture_output=True, text=True, check=True
            ).stdout
            self.assertEqual(text.count("ebbmalloc 0."), 2 + preloaded, text)
            running.communicate()

    # When a worker ends, Node may unload libraries that only this worker had loaded.
    def test_node_workers_load_and_unload(self):
        node = shutil.which("node")
        if node is None:
            self.skipTest("node is not installed")
        self.succeed("""
            const { Worker } = require('worker_threads');
            const work = `
                const words = require(process.cwd() + '/words_node.node');
                const found = words.followers(words.sample(3000));
                require('worker_threads').parentPort.postMessage(found.length);
            `;
            const run = () => new Promise((resolve, reject) => {
                const worker = new Worker(work, { eval: true });
                let found;
                worker.on('message', (count) => { found = count; });
                worker.on('error', reject);
                worker.on('exit', () => resolve(found));
            });
            (async () => {
                for (let round = 0; round < 5; round++) {
                    const found = await Promise.all([run(), run(), run()]);
                    if (!found.every((count) => count > 1000)) throw new Error(String(found));
                }
                const words = require(process.cwd() + '/words_node.node');
                if (words.followers(words.sample(3000)).length < 1000) throw new Error('main');
            })();
        """, program=(node, "-e"))
