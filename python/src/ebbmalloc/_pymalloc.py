"""Reads how much memory pymalloc has, Python's allocator of small objects in arenas of its own."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import threading
from dataclasses import dataclass
from typing import NamedTuple, Optional


@dataclass(frozen=True)
class Pymalloc:
    """Memory of Python's arenas, in bytes. They serve requests of up to 512 bytes."""

    arena_bytes: int
    #: In blocks with objects, rounded up to pymalloc's sizes.
    object_bytes: int


class Arenas(NamedTuple):
    """The result, and a sentence about it."""

    pymalloc: Optional[Pymalloc]
    sentence: str


_one_at_a_time = threading.Lock()


def look() -> Arenas:
    """Asks Python, which answers on standard error only."""
    report = _captured()
    arenas = re.search(r"\d+ arenas \* \d+ bytes/arena += +([\d,]+)", report)
    objects = re.search(r"# bytes in allocated blocks += +([\d,]+)", report)
    if arenas is None or objects is None:
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            return Arenas(
                None, "This Python has no GIL and keeps its objects in an allocator of its own.\n"
            )
        return Arenas(None, "Python's objects are malloc's, like all else (no pymalloc arenas).\n")
    pymalloc = Pymalloc(_number(arenas), _number(objects))
    return Arenas(
        pymalloc,
        f"pymalloc arenas: {_mib(pymalloc.arena_bytes)} that Python maps itself, past malloc, with "
        f"{_mib(pymalloc.object_bytes)} of objects in them. To change it: PYTHONMALLOC=malloc "
        "(`python -m ebbmalloc run --objects app.py`).\n",
    )


def _captured() -> str:
    """Returns what ``sys._debugmallocstats`` prints.

    It prints by an unbuffered C stream to descriptor 2 only. Output of other threads to it in these
    microseconds is lost.
    """
    with _one_at_a_time, open(os.memfd_create("pymalloc"), "r") as file:
        error = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(error, 2)
            os.close(error)
        file.seek(0)
        return file.read()


def _number(match: re.Match[str]) -> int:
    return int(match[1].replace(",", ""))


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
