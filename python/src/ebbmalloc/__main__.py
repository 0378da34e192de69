"""The command line: ``python -m ebbmalloc``, and the command ``ebb``."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

from . import library

_USAGE = """\
usage: python -m ebbmalloc run [--objects] [OPTIONS] app.py ARGUMENTS...
       python -m ebbmalloc why [--objects] PID | app.py ARGUMENTS...
       python -m ebbmalloc library

run      runs this Python on ebbmalloc; instead of app.py: whatever else Python takes, such as \
-m MODULE
why      says where the resident memory of a process is; or of app.py, at its peak
library  prints where the library is, for LD_PRELOAD

--objects         Python's small objects too, which are otherwise in arenas of its own \
(PYTHONMALLOC=malloc)
OPTIONS are those of `ebb run`, among them:
--stats           print ebbmalloc's statistics at the end
--mode MODE       how caches are shared: auto, percpu, thread or slot
--limit SIZE      the most memory that blocks may take, such as 512M or 75%
--set NAME=VALUE  any option of docs/options.md, such as purge_delay=1s

The command `ebb` does more: `ebb --help`.
"""


#: Options of `ebb run`, and how many values each has.
_OPTIONS = {
    "--stats": 0,
    "--explain": 0,
    "--check": 0,
    "--harden": 0,
    "--mode": 1,
    "--sample": 1,
    "--limit": 1,
    "--set": 1,
}


def ebb() -> NoReturn:
    """Runs the command `ebb` that cargo built. It finds the library in its own folder."""
    _become(sys.argv[1:])


def main() -> None:
    """Runs ``python -m ebbmalloc``."""
    task, *rest = sys.argv[1:] or ["--help"]
    if task in ("-h", "--help"):
        sys.stdout.write(_USAGE)
    elif task == "library" and not rest:
        print(library())
    elif task == "run":
        options, program = _split(rest, {"--objects": 0, **_OPTIONS})
        _become(["run", *_without_objects(options), "--", sys.executable, *program])
    elif task == "why":
        options, program = _split(rest, {"--objects": 0, "--json": 0, "--at-end": 0})
        process = program if program[0].isdigit() else ["--", sys.executable, *program]
        _become(["why", *_without_objects(options), *process])
    else:
        _refuse(f"`{task}` is none of run, why and library")


def _split(words: list[str], known: dict[str, int]) -> tuple[list[str], list[str]]:
    """Splits options, with as many values as `known` says, from the program after them."""
    at = 0
    while at < len(words):
        name, has_value, _ = words[at].partition("=")
        if name not in known:
            break
        at += 1 if has_value else 1 + known[name]
    if at >= len(words):
        _refuse("a program is missing")
    return words[:at], words[at:]


def _without_objects(options: list[str]) -> list[str]:
    """Returns the options of `ebb`, and applies `--objects`, which is Python's."""
    if "--objects" in options:
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            _refuse("--objects: a Python without GIL keeps its objects in an allocator of its own")
        os.environ["PYTHONMALLOC"] = "malloc"
    return [option for option in options if option != "--objects"]


def _become(arguments: list[str]) -> NoReturn:
    command = Path(__file__).parent / "ebb"
    os.execv(command, ["ebb", *arguments])


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"ebbmalloc: {why}\n{_USAGE}")
    sys.exit(2)


if __name__ == "__main__":
    main()
