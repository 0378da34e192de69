"""Heap profiles: which stacks of calls allocated the memory in use.

    from ebbmalloc import profile

    with profile.record("/var/tmp/app.heap"):
        work()

``ebb profile app.heap`` shows it, and ``ebb profile PID`` does the same from outside at any time.
While a profile is on, a few allocated blocks are sampled with their stacks. Python's small objects
are among them only with ``python -m ebbmalloc run --objects``.

Where ebbmalloc is not active, every function here returns False and does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Union

from . import _library

__all__ = ["MEAN_BYTES", "record", "start", "stop", "write"]

#: The mean number of bytes from one sample to the next that suits production: 512 KiB.
MEAN_BYTES = 512 << 10


#: Whether :func:`start` has Python name its functions.
_names = False


def start(mean_bytes: int = MEAN_BYTES, names: bool = True) -> bool:
    """Begins a profile: one block in ``mean_bytes`` bytes is sampled, on average.

    A profile that is on with this mean goes on. With ``names``, Python 3.12 and later name the
    Python functions that are called from now on, as with ``python -X perf``. That slows calls down
    a little, and leaves the file ``/tmp/perf-PID.map``, where ``ebb`` finds the names.
    """
    if mean_bytes < 1:
        raise ValueError("mean_bytes must be at least 1")
    if _library.loaded is None:
        return False
    if _library.loaded.ebb_profile_start(mean_bytes) != 0:
        raise MemoryError("no memory for the tables of the heap profile")
    if names:
        _name_python_functions()
    return True


def stop() -> bool:
    """Ends the profile. It can still be written: blocks that are freed later are subtracted."""
    if _library.loaded is None:
        return False
    _library.loaded.ebb_profile_stop()
    global _names
    if sys.version_info >= (3, 12) and _names:
        sys.deactivate_stack_trampoline()
        _names = False
    return True


def write(path: Union[str, "os.PathLike[str]"]) -> bool:
    """Writes the profile to a file, which ``ebb profile FILE`` and ``go tool pprof`` read.

    Raises OSError if it cannot be written, and if no profile was started.
    """
    if _library.loaded is None:
        return False
    if _library.loaded.ebb_profile_write(os.fsencode(path)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fspath(path))
    return True


@contextlib.contextmanager
def record(
    path: Union[str, "os.PathLike[str]"], mean_bytes: int = MEAN_BYTES, names: bool = True
) -> Iterator[None]:
    """Profiles the block of a ``with`` statement, and writes the profile at its end."""
    start(mean_bytes, names)
    try:
        yield
        write(path)
    finally:
        stop()


def _name_python_functions() -> None:
    global _names
    if sys.version_info >= (3, 12) and not sys.is_stack_trampoline_active():
        # An error tells that this Python was built without it, or that another tool evaluates
        # Python's frames.
        with contextlib.suppress(ValueError, RuntimeError):
            sys.activate_stack_trampoline("perf")
            _names = True
