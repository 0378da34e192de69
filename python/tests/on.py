"""Runs programs in processes of their own, on ebbmalloc as the wheel installed it. Nothing here is told where it is."""

import json
import os
import subprocess
import sys
import textwrap

CLEAN = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "PYTHONMALLOC", "PYTHONPATH")}


def command(*words, **variables):
    """A command's result; it may take two minutes, lest a hanging one hangs the tests."""
    return subprocess.run(
        [str(word) for word in words], env=CLEAN | variables, capture_output=True, text=True, timeout=120, check=False
    )


def module(*words, **variables):
    """`python -m ebbmalloc WORDS`."""
    return command(sys.executable, "-m", "ebbmalloc", *words, **variables)


def succeed(result):
    """What it printed."""
    assert result.returncode == 0, f"{result.args} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    return result.stdout


def exit_statistics(result):
    """What the library of the process that ended last printed, by EBB_STATS=json."""
    found = [line for line in result.stderr.splitlines() if line.startswith('{"version"')]
    assert found, f"no statistics: {result.stderr}"
    return json.loads(found[-1])


def run(code, *options, **variables):
    """What a program prints that is run on ebbmalloc."""
    return succeed(module("run", *options, "-c", textwrap.dedent(code), **variables))
