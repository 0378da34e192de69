"""Misuse of memory, as an extension might do it: ctypes calls malloc of the installed library."""

import re
import signal
import textwrap
import unittest

from on import module

# The program stays on one CPU, where the double free of a small block is seen at once. It leaves no
# core dump.
START = """
import ctypes, os, resource

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
process = ctypes.CDLL(None)

def function(name, result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)((name, process))

malloc = function("malloc", ctypes.c_void_p, ctypes.c_size_t)
free = function("free", None, ctypes.c_void_p)
free_sized = function("free_sized", None, ctypes.c_void_p, ctypes.c_size_t)

def tell(address):
    print(hex(address), flush=True)
    return address
"""
END = 'print("went on")\n'


def run(code, *options):
    return module("run", *options, "-c", START + textwrap.dedent(code) + END)


class Misuse(unittest.TestCase):
    # The calls of the other tests, used correctly: the calls themselves do not stop a program.
    def test_what_is_right_goes_on(self):
        result = run("""
            for size in (1000, 3_000_000):
                free(malloc(size))
                free_sized(malloc(size), size)
            free(None)
        """)
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "went on\n", ""))

    def test_a_small_block_freed_twice(self):
        self.stopped("double free: {} passed to free", """
            block = tell(malloc(1000))
            free(block)
            free(block)
        """)

    def test_a_large_block_freed_twice(self):
        self.stopped("double free: {} passed to free", """
            block = tell(malloc(3_000_000))
            free(block)
            free(block)
        """)

    # Python allocates a buffer of this size in its own arena, which malloc does not know.
    def test_a_buffer_of_python(self):
        self.stopped("invalid free: {} passed to free", """
            buffer = ctypes.create_string_buffer(100)
            free(tell(ctypes.addressof(buffer)))
        """)

    # With --objects the buffer is a block of malloc, and this address is inside it.
    def test_inside_a_buffer_of_python(self):
        self.stopped("interior pointer: {} passed to free", """
            buffer = ctypes.create_string_buffer(100)
            free(tell(ctypes.addressof(buffer) + 16))
        """, "--objects")

    def test_inside_a_small_block(self):
        self.stopped("interior pointer: {} passed to free", "free(tell(malloc(1000) + 16))\n")

    def test_inside_a_large_block(self):
        self.stopped("interior pointer: {} passed to free", "free(tell(malloc(3_000_000) + 16))\n")

    def test_a_size_that_is_too_large(self):
        wrong = "wrong size: {} passed to free as a block of 1024 bytes; it has 64"
        self.stopped(wrong, "free_sized(tell(malloc(64)), 1024)\n")

    def test_a_size_that_is_too_small(self):
        wrong = "wrong size: {} passed to free as a block of 64 bytes; it has 1024"
        self.stopped(wrong, "free_sized(tell(malloc(1024)), 64)\n")

    # The program prints an address and misuses it. Its last output is one line about that address.
    def stopped(self, fault, code, *options):
        result = run(code, *options)
        self.assertEqual(result.returncode, -signal.SIGABRT, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"\A0x[0-9a-f]+\n\Z")
        told = re.escape(fault.format(result.stdout.strip()))
        self.assertRegex(result.stderr, rf"\Aebbmalloc: {told} \(python[\w.]*, pid \d+\)\n\Z")
