"""Statistics and control of ebbmalloc from within a running program.

Start the program on it with ``python -m ebbmalloc run app.py``, ``ebb run -- python app.py`` or by
``LD_PRELOAD``. Where ebbmalloc is not active, every function here says so and does nothing, so a
program can keep its calls.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union, cast

from . import _library, _pymalloc
from ._pymalloc import Pymalloc
from ._statistics import ClassStats, Stats

__all__ = [
    "ClassStats",
    "Line",
    "Pymalloc",
    "Stats",
    "Why",
    "idle",
    "is_active",
    "library",
    "metrics",
    "run",
    "set",
    "stats",
    "trim",
    "why",
]

_NOT_ACTIVE = (
    "ebbmalloc is not active in this process: start it with `python -m ebbmalloc run app.py`.\n"
)


def library() -> Path:
    """The path of this package's library, for ``LD_PRELOAD``."""
    return Path(__file__).parent / "libebbmalloc.so"


def is_active() -> bool:
    """Whether ebbmalloc serves malloc in this process."""
    return _library.loaded is not None


def run(
    *arguments: str, objects: bool = False, fixed: bool = False, **options: Union[str, int, bool]
) -> int:
    """Runs this Python with these arguments on ebbmalloc. Returns its exit code.

    Options are those of docs/options.md, in lower case without ``EBB_``::

        ebbmalloc.run("app.py", "--port", "80", limit="75%", harden=True)

    Variables of the environment have the last word, unless ``fixed``. ``objects`` sends Python's
    small objects to malloc too.
    """
    environment = dict(os.environ, PYTHONMALLOC="malloc") if objects else None
    words = [
        f"--set={name}={int(value) if isinstance(value, bool) else value}"
        for name, value in options.items()
        if fixed or f"EBB_{name.upper()}" not in os.environ
    ]
    command = str(Path(__file__).parent / "ebb")
    program = [sys.executable, *arguments]
    return subprocess.call([command, "run", *words, "--", *program], env=environment)


def set(name: str, value: Union[str, int, bool]) -> bool:
    """Changes an option from now on; False if ebbmalloc is not active.

    Names and values are as for :func:`run`; limit, purge_delay, huge, scavenger, profile and stats
    (what is printed at exit) can be changed. Raises ``ValueError`` for another name or value, and
    ``OSError`` if the option cannot be changed now.
    """
    if _library.loaded is None:
        return False
    text = str(int(value) if isinstance(value, bool) else value)
    if _library.loaded.ebb_ctl(name.encode(), text.encode()) == 0:
        return True
    error = ctypes.get_errno()
    if error == errno.EPERM:
        raise OSError(error, f"{name}={text}: memory is short, or another option forbids it")
    reasons = {
        errno.ENOENT: "no option has this name",
        errno.ENOTSUP: "this option can be set at start only",
    }
    raise ValueError(f"{name}={text}: {reasons.get(error, 'the value is not understood')}")


def stats() -> Optional[Stats]:
    """All current statistics (docs/stats.md explains them); None if ebbmalloc is not active.

    ``peak_bytes``, ``allocated_bytes`` and ``freed_bytes`` are counted only if ``EBB_STATS`` was
    set at the start.
    """
    if _library.loaded is None:
        return None
    return cast(Stats, json.loads(_library.statistics(_library.loaded, _library.JSON)))


def metrics(openmetrics: bool = False) -> str:
    """The statistics as text for Prometheus; empty if ebbmalloc is not active.

    The text is in Prometheus' older format, ``text/plain; version=0.0.4``, and can be appended to
    that of other metrics. ``openmetrics``: a page of its own, of type
    ``application/openmetrics-text; version=1.0.0``.
    """
    if _library.loaded is None:
        return ""
    form = _library.OPENMETRICS if openmetrics else _library.PROMETHEUS
    return _library.statistics(_library.loaded, form)


def trim() -> bool:
    """Returns free memory to the kernel at once. True if there was any.

    Seldom needed: the library returns free memory by itself.
    """
    return _library.loaded is not None and bool(_library.loaded.ebb_malloc_trim(0))


def idle() -> bool:
    """For programs without threads: an event loop calls it before it waits.

    Returns some memory that was not needed recently. True if another call is worthwhile after the
    purge delay (`EBB_PURGE_DELAY`, 200 ms); False if there is nothing more to return, or the
    library's scavenger does it.
    """
    return _library.loaded is not None and bool(_library.loaded.ebb_idle())


@dataclass(frozen=True)
class Line:
    """One reason why memory is resident."""

    label: str
    #: Rounded to a tenth of a KiB or MiB, as in the text. :func:`stats` is exact.
    bytes: int
    #: The share of all resident memory of the process.
    percent: float
    meaning: str


@dataclass(frozen=True)
class Why:
    """Where the resident memory of this process is."""

    #: The report for people. It says so if ebbmalloc is not active.
    text: str
    #: Memory of ebbmalloc, and last other memory. Empty if ebbmalloc is not active.
    lines: tuple[Line, ...]
    #: Conclusions, of a sentence or two each.
    conclusions: tuple[str, ...]
    #: Memory in Python's own arenas; None if Python's objects come from malloc.
    pymalloc: Optional[Pymalloc]

    def __str__(self) -> str:
        return self.text


def why() -> Why:
    """Explains the resident memory of this process. ``ebb why PID`` tells more, from outside."""
    arenas = _pymalloc.look()
    if _library.loaded is None:
        return Why(_NOT_ACTIVE + arenas.sentence, (), (), arenas.pymalloc)
    told = _library.why(_library.loaded)
    first, *rest = told.splitlines()
    found = [(_LINE.fullmatch(line), line) for line in rest]
    lines = tuple(_line(match) for match, _ in found if match)
    conclusions = tuple(line for match, line in found if not match)
    return Why(told + arenas.sentence, lines, conclusions, arenas.pymalloc)


# Lines of `ebb_why`: "    63.2 MiB  93.0 %  pinned free blocks: Free blocks that ...".
_LINE = re.compile(r" *([\d.]+) (B|KiB|MiB) +([\d.]+) %  ([^:]+?)(?:: (.*))?")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}


def _line(match: re.Match[str]) -> Line:
    number, unit, percent, label, meaning = match.groups()
    return Line(label, round(float(number) * _UNITS[unit]), float(percent), meaning or "")
