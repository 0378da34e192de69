"""Runs programs in separate processes, on ebbmalloc as the wheel installed it, without its path."""

import json
import os
import subprocess
import sys
import textwrap

CLEAN = {
    name: value
    for name, value in os.environ.items()
    if name not in ("LD_PRELOAD", "PYTHONMALLOC", "PYTHONPATH")
}


def command(*words, **variables):
    """Runs a command and returns its result. After two minutes it fails, so a hang ends."""
    return subprocess.run(
        [str(word) for word in words],
        env=CLEAN | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def module(*words, **variables):
    """Runs `python -m ebbmalloc WORDS`."""
    return command(sys.executable, "-m", "ebbmalloc", *words, **variables)


def succeed(result):
    """Checks that the command succeeded, and returns what it printed."""
    failure = f"{result.args} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    assert result.returncode == 0, failure
    return result.stdout


def exit_statistics(result):
    """Returns the statistics (EBB_STATS=json) of the process that ended last."""
    found = [line for line in result.stderr.splitlines() if line.startswith('{"version"')]
    assert found, f"no statistics: {result.stderr}"
    return json.loads(found[-1])


def run(code, *options, **variables):
    """Runs a program on ebbmalloc and returns what it prints."""
    return succeed(module("run", *options, "-c", textwrap.dedent(code), **variables))
