"""A look at ebbmalloc from within a running program, and a word to it now and then.

Start the program on it with ``python -m ebbmalloc run app.py``, ``ebb run -- python app.py`` or by
``LD_PRELOAD``. Where it is not active every function here says so and does nothing, so a program can
keep its calls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, cast

from . import _library, _pymalloc
from ._pymalloc import Pymalloc
from ._statistics import ClassStats, Stats

__all__ = ["ClassStats", "Line", "Pymalloc", "Stats", "Why", "idle", "is_active", "library", "stats", "trim", "why"]

_NOT_ACTIVE = "ebbmalloc is not active in this process: start it with `python -m ebbmalloc run app.py`.\n"


def library() -> Path:
    """The library that this package brings, to preload."""
    return Path(__file__).parent / "libebbmalloc.so"


def is_active() -> bool:
    """Whether malloc is ebbmalloc's in this process."""
    return _library.loaded is not None


def stats() -> Optional[Stats]:
    """All statistics of this moment (docs/stats.md tells what they mean); None if not active.

    ``peak_bytes``, ``allocated_bytes`` and ``freed_bytes`` are counted if ``EBB_STATS`` was set at the start.
    """
    if _library.loaded is None:
        return None
    return cast(Stats, json.loads(_library.statistics(_library.loaded)))


def trim() -> bool:
    """Gives free memory back to the kernel at once. True if there was any.

    Needless as a habit: free memory goes back by itself.
    """
    return _library.loaded is not None and bool(_library.loaded.ebb_malloc_trim(0))


def idle() -> bool:
    """For programs without threads, when they have nothing else to do: an event loop calls it before it waits.

    Gives some memory back that nobody has needed of late. True if it is worth calling again after a fifth of
    a second; False if there is nothing more to give back, or a thread of the library looks after it.
    """
    return _library.loaded is not None and bool(_library.loaded.ebb_idle())


@dataclass(frozen=True)
class Line:
    """One reason for which memory is resident."""

    label: str
    #: To a tenth of a KiB or MiB, as the text has it. :func:`stats` is exact.
    bytes: int
    #: Of all that is resident in the process.
    percent: float
    meaning: str


@dataclass(frozen=True)
class Why:
    """Where the resident memory of this process is."""

    #: For people; if ebbmalloc is not active, that it is not.
    text: str
    #: What ebbmalloc holds, and last what is not its own. Empty if it is not active.
    lines: tuple[Line, ...]
    #: What follows from that, a sentence or two each.
    conclusions: tuple[str, ...]
    #: What Python holds in arenas of its own; None if its objects are malloc's.
    pymalloc: Optional[Pymalloc]

    def __str__(self) -> str:
        return self.text


def why() -> Why:
    """Looks at this process from within. ``ebb why PID`` tells more, from outside."""
    arenas = _pymalloc.look()
    if _library.loaded is None:
        return Why(_NOT_ACTIVE + arenas.sentence, (), (), arenas.pymalloc)
    told = _library.why(_library.loaded)
    first, *rest = told.splitlines()
    found = [(_LINE.fullmatch(line), line) for line in rest]
    lines = tuple(_line(match) for match, _ in found if match)
    conclusions = tuple(line for match, line in found if not match)
    return Why(told + arenas.sentence, lines, conclusions, arenas.pymalloc)


# As `ebb_why` writes them: "    63.2 MiB  93.0 %  pinned free blocks: Free blocks that ...".
_LINE = re.compile(r" *([\d.]+) (B|KiB|MiB) +([\d.]+) %  ([^:]+?)(?:: (.*))?")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def _line(match: re.Match[str]) -> Line:
    number, unit, percent, label, meaning = match.groups()
    return Line(label, round(float(number) * _UNITS[unit]), float(percent), meaning or "")
