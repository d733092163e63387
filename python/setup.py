"""Builds a wheel that carries libkvffi.so: one for all versions of Python 3, since ctypes loads the library.

The library is `$KVFFI_LIBRARY`, or what `cargo build --release` left in target/.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = Path(os.environ.get("KVFFI_LIBRARY") or ROOT / "target" / "release" / "libkvffi.so")


class WithMachineCode(Distribution):  # type: ignore[misc]
    def has_ext_modules(self) -> bool:
        return True


class BuildWithLibrary(build_py):  # type: ignore[misc]
    def run(self) -> None:
        super().run()
        if not LIBRARY.is_file():
            raise SystemExit(
                f"{LIBRARY} does not exist: run `cargo build --release --package kvffi`, or set KVFFI_LIBRARY"
            )
        carried = Path(self.build_lib) / "kvffi" / "libkvffi.so"
        shutil.copyfile(LIBRARY, carried)
        # Lines for backtraces are four fifths of it.
        subprocess.run(["strip", "--strip-debug", str(carried)], check=True, timeout=60)


class WheelForAllPythons(bdist_wheel):  # type: ignore[misc]
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def version() -> str:
    manifest = (ROOT / "Cargo.toml").read_text()
    found = re.search(r'^\[workspace\.package\]\nversion = "(.+)"$', manifest, re.MULTILINE)
    if found is None:
        raise SystemExit("Cargo.toml has no workspace.package.version")
    return found[1]


def readme() -> str:
    """The README with the texts of links to files alone: the files are not where the wheel is."""
    return re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", (ROOT / "python" / "README.md").read_text())


setup(
    version=version(),
    long_description=readme(),
    long_description_content_type="text/markdown",
    distclass=WithMachineCode,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelForAllPythons},
)
