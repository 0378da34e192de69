"""Builds the library and the command with cargo, and puts both into the package.

Nothing in the wheel depends on the version of Python: the module calls the library by ctypes.
"""

import json
import os
import platform
import re
import subprocess
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The files of the package, and the crates that they come from.
FILES = {"libebbmalloc.so": "ebbmalloc-capi", "ebb": "ebb"}


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        if version == "editable":
            raise RuntimeError(
                "an editable install has no place for the library: install the wheel"
            )
        root = Path(self.root).parent
        cargo = [os.environ.get("CARGO", "cargo")]
        packages = [word for crate in FILES.values() for word in ("--package", crate)]
        subprocess.run([*cargo, "build", "--release", "--locked", *packages], cwd=root, check=True)
        metadata = [*cargo, "metadata", "--format-version=1", "--no-deps", "--offline"]
        metadata = json.loads(
            subprocess.run(metadata, cwd=root, check=True, stdout=subprocess.PIPE).stdout
        )
        target = Path(metadata["target_directory"])
        stripped = target / "wheel"
        stripped.mkdir(exist_ok=True)
        for name in FILES:
            subprocess.run(["strip", "-o", stripped / name, target / "release" / name], check=True)
            build_data["force_include"][str(stripped / name)] = f"ebbmalloc/{name}"
        build_data["force_include"][str(root / "LICENSE")] = "ebbmalloc/LICENSE"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_{glibc(stripped)}_{platform.machine()}"


def glibc(folder):
    """Returns the oldest glibc 2.x that has all symbols of the files, from their string tables."""
    names = (
        name
        for file in FILES
        for name in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", (folder / file).read_bytes())
    )
    return max(int(name) for name in names)
