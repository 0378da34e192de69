"""Finds the library's functions in the process, if the library is the process's malloc."""

from __future__ import annotations

import ctypes
import os
from typing import Optional

JSON = 2
OPENMETRICS = 3
PROMETHEUS = 4


class _Symbol(ctypes.Structure):
    """``Dl_info`` of dladdr(3)."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def _find() -> Optional[ctypes.CDLL]:
    """Returns the process itself, if `ebb_stats` and malloc are in one library (or in the program).

    It looks up posix_memalign instead of malloc: where Python is linked at fixed addresses, as on
    Debian, and takes malloc's address, malloc itself seems to be in Python.
    """
    process = ctypes.CDLL(None, use_errno=True)
    try:
        bases = [_base(process, name) for name in ("posix_memalign", "ebb_stats")]
    except AttributeError:
        return None
    if bases[0] is None or bases[0] != bases[1]:
        return None
    process.ebb_stats.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    process.ebb_stats.restype = ctypes.c_size_t
    process.ebb_malloc_trim.argtypes = [ctypes.c_size_t]
    process.ebb_ctl.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    process.ebb_why.argtypes = [ctypes.c_void_p]
    process.ebb_profile_start.argtypes = [ctypes.c_size_t]
    process.ebb_profile_stop.argtypes = []
    process.ebb_profile_stop.restype = None
    process.ebb_profile_write.argtypes = [ctypes.c_char_p]
    process.open_memstream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    process.open_memstream.restype = ctypes.c_void_p
    process.fclose.argtypes = [ctypes.c_void_p]
    process.free.argtypes = [ctypes.c_void_p]
    process.free.restype = None
    return process


def _base(process: ctypes.CDLL, name: str) -> Optional[int]:
    found = _Symbol()
    known = process.dladdr(getattr(process, name), ctypes.byref(found))
    base: Optional[int] = found.base if known else None
    return base


loaded = _find()


def statistics(process: ctypes.CDLL, form: int) -> str:
    """The statistics. Numbers may get longer between two calls, so the buffer is larger."""
    room = process.ebb_stats(form, None, 0) + 4096
    buffer = ctypes.create_string_buffer(room)
    process.ebb_stats(form, buffer, room)
    return buffer.value.decode()


def why(process: ctypes.CDLL) -> str:
    """Returns the text that `ebb_why` writes."""
    text, length = ctypes.c_void_p(), ctypes.c_size_t()
    stream = process.open_memstream(ctypes.byref(text), ctypes.byref(length))
    if not stream:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        process.ebb_why(stream)
    finally:
        process.fclose(stream)
    try:
        return ctypes.string_at(text, length.value).decode()
    finally:
        process.free(text)
