"""Measures private memory of a worker of gunicorn that was forked from a loaded application.

`python prefork.py NAME=LIBRARY…` prints the table of docs/python.md; an empty library is glibc's.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from on import CLEAN

# An application that loads 184 MB before gunicorn forks: buffers of 1 to 8 KiB.
APPLICATION = """
import re

cache = [bytearray(1024 + n * 37 % 7168) for n in range(40_000)]

def application(environ, start_response):
    match environ["PATH_INFO"]:
        case "/work":
            for _ in range(50):
                [bytearray(1024 + n * 41 % 7168) for n in range(100)]
        case "/replace":
            del cache[::100]
            cache.extend(bytearray(4000) for n in range(400))
        case "/drop":
            cache.clear()
    with open("/proc/self/smaps_rollup") as file:
        kib = re.search(r"Private_Dirty: +([0-9]+) kB", file.read())[1]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [kib.encode()]
"""
# What the worker is asked for, and how often.
REQUESTS = {"/": 1, "/work": 20, "/replace": 1, "/drop": 1}


def ask(path, request):
    """Sends a request, and returns the body of the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(f"GET {request} HTTP/1.0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.split(b"\r\n")[0], answer
    return body


def private_bytes(*before, **variables):
    """Runs gunicorn by these words. Returns the worker's private dirty bytes after each request."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "app.py").write_text(APPLICATION)
        path = os.path.join(folder, "socket")
        words = [*before, "-m", "gunicorn", "--preload", "--workers=1", f"--bind=unix:{path}"]
        words += ["--chdir", folder, "--log-level=error", "app:application"]
        with subprocess.Popen(words, env=CLEAN | variables) as server:
            try:
                while not os.path.exists(path):
                    assert server.poll() is None, "gunicorn does not start"
                    time.sleep(0.05)
                found = {}
                for request, times in REQUESTS.items():
                    for _ in range(times):
                        found[request] = int(ask(path, request)) << 10
                return found
            finally:
                server.terminate()


if __name__ == "__main__":
    print(f"| private MB after | {' | '.join(REQUESTS)} |\n|---|{'---:|' * len(REQUESTS)}")
    for argument in sys.argv[1:]:
        name, _, library = argument.partition("=")
        found = private_bytes(sys.executable, LD_PRELOAD=library)
        print(f"| {name} | {' | '.join(f'{bytes / 1e6:.1f}' for bytes in found.values())} |")
