"""Builds the library and the command with cargo, and puts both into the package.

Nothing in the wheel depends on the version of Python: the module calls the library by ctypes.

`EBB_WHEEL_TARGET=TARGET` builds for that target by cargo-zigbuild: `x86_64-unknown-linux-gnu.2.17`
for that glibc, or `aarch64-unknown-linux-musl`. `EBB_WHEEL_COMMAND=PATH` names a command that was
built before.
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
        command = os.environ.get("EBB_WHEEL_COMMAND")
        crates = [crate for name, crate in FILES.items() if not (command and name == "ebb")]
        packages = [word for crate in crates for word in ("--package", crate)]
        target = os.environ.get("EBB_WHEEL_TARGET", "")
        triple = target.partition(".")[0]
        # The compiler strips what `strip` here may not know. A shared object needs libc's.
        variables = {
            "CARGO_PROFILE_RELEASE_STRIP": "symbols",
            "RUSTFLAGS": "-C target-feature=-crt-static",
        }
        build = ["cargo-zigbuild", "zigbuild", "--target", target] if target else [*cargo, "build"]
        subprocess.run(
            [*build, "--release", "--locked", *packages],
            cwd=root,
            check=True,
            env=os.environ | variables if target else None,
        )
        metadata = [*cargo, "metadata", "--format-version=1", "--no-deps", "--offline"]
        metadata = json.loads(
            subprocess.run(metadata, cwd=root, check=True, stdout=subprocess.PIPE).stdout
        )
        folder = Path(metadata["target_directory"])
        built = folder / triple / "release"
        stripped = built if target else folder / "wheel"
        stripped.mkdir(exist_ok=True)
        for name in FILES:
            if not target:
                file = command if command and name == "ebb" else built / name
                subprocess.run(["strip", "-o", stripped / name, file], check=True)
            build_data["force_include"][str(stripped / name)] = f"ebbmalloc/{name}"
        build_data["force_include"][str(root / "LICENSE")] = "ebbmalloc/LICENSE"
        build_data["pure_python"] = False
        machine = triple.partition("-")[0] or platform.machine()
        # Rust's musl is 1.2.
        libc = "musllinux_1_2" if "musl" in triple else f"manylinux_2_{glibc(stripped)}"
        build_data["tag"] = f"py3-none-{libc}_{machine}"


def glibc(folder):
    """Returns the oldest glibc 2.x that has all symbols of the files, from their string tables."""
    names = (
        name
        for file in FILES
        for name in re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", (folder / file).read_bytes())
    )
    return max(int(name) for name in names)
