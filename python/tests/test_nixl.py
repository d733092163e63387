"""NIXL is found in an installed wheel, of the interpreter that runs, and nowhere else by this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


def install(site: Path, name: str) -> Path:
    """A wheel as pip leaves it, with a library that cannot be loaded."""
    folder = name.replace("-", "_").replace(".", "_").lower()
    library = site / f".{folder}.mesonpy.libs" / "libnixl_capi.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"no library")
    (site / folder).mkdir()
    (site / folder / "__init__.py").touch()
    info = site / f"{folder}-1.5.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5.1\n")
    (info / "RECORD").write_text(f".{folder}.mesonpy.libs/libnixl_capi.so,,\n{folder}/__init__.py,,\n")
    return library


def run(program: str, site: Path, **environment: str) -> str:
    """Runs a program with a folder of packages in front of all others."""
    env = {name: value for name, value in os.environ.items() if name != "KVNIXL_LIBRARY"}
    env |= {"PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'python/src'}", **environment}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


FIND = "from kvffi import _nixl; print(_nixl.library())"


# Of all that are found the first by name counts, and the test's own environment may have nixl-cu12.
@pytest.mark.parametrize("name", ["nixl", "NIXL.cu11"])
def test_the_library_of_an_installed_wheel_is_found(tmp_path: Path, name: str) -> None:
    assert run(FIND, tmp_path) != (library := str(install(tmp_path, name)))
    assert run(FIND, tmp_path) == library


def test_the_wheel_that_the_program_has_imported_is_shared(tmp_path: Path) -> None:
    install(tmp_path, "nixl-cu12")
    second = install(tmp_path, "nixl-cu13")
    assert run("import nixl_cu13\n" + FIND, tmp_path) == str(second)


def test_the_environment_counts_before_a_wheel(tmp_path: Path) -> None:
    install(tmp_path, "nixl-cu12")
    assert run(FIND, tmp_path, KVNIXL_LIBRARY="/anywhere") == "None"
    program = """
import kvffi
try:
    kvffi.Agent("a")
except kvffi.LibraryError as error:
    print(error)
"""
    assert "/no/such/place" in run(program, tmp_path, KVNIXL_LIBRARY="/no/such/place")


def test_an_agent_loads_what_was_found(tmp_path: Path) -> None:
    library = install(tmp_path, "nixl-cu12")
    program = """
import kvffi
try:
    kvffi.Agent("a")
except kvffi.LibraryError as error:
    print(error)
"""
    assert str(library) in run(program, tmp_path)


def test_a_wheel_without_the_library_is_none(tmp_path: Path) -> None:
    install(tmp_path, "nixl-cu12").unlink()
    assert not run(FIND, tmp_path).startswith(str(tmp_path))


def test_of_two_folders_the_first_counts_as_it_does_for_imports(tmp_path: Path) -> None:
    first, second = (install(tmp_path / folder, "nixl") for folder in ("a", "b"))
    assert run(f"import sys; sys.path.append({str(tmp_path / 'b')!r})\n" + FIND, tmp_path / "a") == str(first)
    assert run(FIND, tmp_path / "b") == str(second)
