"""Measures the extensions without and with ebbmalloc, as a table of medians of interleaved runs.

    python3 measure.py FOLDER [ROUNDS]     FOLDER is where `cargo xtask examples` builds
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

# Each program prints milliseconds of the fastest of three rounds, then peak resident and virtual
# memory in KiB.
PYTHON = """
import time, words_python
text = words_python.sample(300_000)
def once():
    start = time.perf_counter()
    words_python.followers(text)
    return 1e3 * (time.perf_counter() - start)
best = min(once() for _ in range(3))
status = dict(line.split(":") for line in open("/proc/self/status"))
print(best, *(status[name].split()[0] for name in ("VmHWM", "VmPeak")))
"""
NODE = """
const words = require('./words_node.node');
const text = words.sample(300000);
const once = () => {
    const start = performance.now();
    words.followers(text);
    return performance.now() - start;
};
const best = Math.min(...Array.from({ length: 3 }, once));
const status = require('fs').readFileSync('/proc/self/status', 'utf8');
const peak = (name) => status.match(new RegExp(name + ':\\\\s*(\\\\d+)'))[1];
console.log(best, peak('VmHWM'), peak('VmPeak'));
"""
PROGRAMS = {
    "Python extension": ("words_python.so", [sys.executable, "-c", PYTHON]),
    "Node addon": ("words_node.node", ["node", "-e", NODE]),
    "benchmark": ("followers", ["./followers"]),
}


def spread(values, unit, digits):
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f}) {unit}"


def main():
    folder, rounds = Path(sys.argv[1]), int((*sys.argv[2:], "7")[0])
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("EBB_", "LD_PRELOAD"))
    }
    print("| | without | with ebbmalloc |\n|---|---:|---:|")
    for name, (file, command) in PROGRAMS.items():
        runs = {"without": [], "with": []}
        for number in range(rounds):
            for variant in list(runs)[:: 1 if number % 2 else -1]:
                done = subprocess.run(
                    command, cwd=folder / variant, env=environment, capture_output=True, check=True
                )
                runs[variant].append([float(word) for word in done.stdout.split()])
        sizes = [f"{(folder / variant / file).stat().st_size / 1024:.0f} KiB" for variant in runs]
        print(f"| {name}: on disk | {sizes[0]} | {sizes[1]} |")
        for column, (what, unit, scale, digits) in enumerate(
            [
                ("time", "ms", 1, 0),
                ("peak resident", "MiB", 1024, 1),
                ("peak virtual", "GiB", 1 << 20, 2),
            ]
        ):
            told = [
                spread([run[column] / scale for run in of], unit, digits) for of in runs.values()
            ]
            print(f"| {name}: {what} | {told[0]} | {told[1]} |")


if __name__ == "__main__":
    main()
