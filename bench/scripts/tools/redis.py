#!/usr/bin/env python3
"""Runs redis-server on one allocator under redis-benchmark; prints its figures as a line of JSON.

Only the server has the allocator; this script and the clients keep the C library's. Debian's server
is linked with jemalloc, so for the C library's allocator to serve, it too must be preloaded. The
C++ library follows: otherwise an allocator without operator new of its own would get jemalloc's,
whose blocks it cannot free.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IDLE_SECONDS = 1


def c_library():
    """Returns the C library's path, from this process's own mappings."""
    return re.search(r"\S+/libc\.so\.6$", Path("/proc/self/maps").read_text(), re.MULTILINE)[0]


class Server:
    def __init__(self, library, directory):
        self.socket = f"{directory}/socket"
        without_files = ["--save", "", "--appendonly", "no", "--dir", directory]
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", self.socket, *without_files],
            env={**os.environ, "LD_PRELOAD": f"{library}:libstdc++.so.6"},
            stdout=subprocess.DEVNULL,
        )
        self.wait_until_ready()
        if library not in self.about("maps"):
            sys.exit(f"redis-server runs without {library}")

    def about(self, what):
        return Path(f"/proc/{self.process.pid}/{what}").read_text()

    def wait_until_ready(self):
        deadline = time.monotonic() + 10
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit("redis-server does not start")
            time.sleep(0.01)

    def status_kib(self, field):
        return int(re.search(rf"^{field}:\s*(\d+) kB", self.about("status"), re.MULTILINE)[1])

    def ask(self, *command):
        return subprocess.run(
            ["redis-cli", "-s", self.socket, *command], check=True, capture_output=True, text=True
        ).stdout

    def load(self, arguments):
        subprocess.run(
            ["redis-benchmark", "-q", "-s", self.socket, *shlex.split(arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def check(self):
        """Ends the run if the server refused a request; the clients do not report that."""
        errors = int(re.search(r"total_error_replies:(\d+)", self.ask("info", "stats"))[1])
        keys = int(self.ask("dbsize").split()[-1])
        if errors or not keys:
            sys.exit(f"redis-server gave {errors} errors and holds {keys} keys")

    def end(self):
        """Ends the server. Returns the seconds of CPU time that it took in all."""
        self.process.send_signal(signal.SIGTERM)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            sys.exit(f"redis-server ended with {self.process.returncode}")
        return usage.ru_utime + usage.ru_stime


def measure(server, loads):
    begin = time.perf_counter()
    for load in loads:
        server.load(load)
    figures = {"time_s": time.perf_counter() - begin}
    server.check()
    figures["loaded_kib"] = server.status_kib("VmRSS")
    server.ask("flushall")
    time.sleep(IDLE_SECONDS)
    figures["end_kib"] = server.status_kib("VmRSS")
    figures["peak_kib"] = server.status_kib("VmHWM")
    return {**figures, "cpu_s": server.end()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--library", default=c_library(), help="the allocator; default: the C library's"
    )
    parser.add_argument("loads", nargs="+", help="arguments of redis-benchmark, one string a load")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = Server(options.library, directory)
        try:
            print(json.dumps(measure(server, options.loads)))
        finally:
            if server.process.returncode is None:
                server.process.kill()


if __name__ == "__main__":
    main()
