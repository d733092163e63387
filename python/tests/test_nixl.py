"""NIXL is found in an installed wheel, of the interpreter that runs, and nowhere else by this package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT


def install(site: Path, name: str, version: str = "1.5.1", files: tuple[str, ...] = ("libnixl_capi.so",)) -> Path:
    """A wheel as pip leaves it, with libraries that cannot be loaded; the first of them."""
    folder = name.replace("-", "_").replace(".", "_").lower()
    libraries = site / f".{folder}.mesonpy.libs"
    libraries.mkdir(parents=True)
    for file in files:
        (libraries / file).write_bytes(b"no library")
    (site / folder).mkdir()
    (site / folder / "__init__.py").touch()
    info = site / f"{folder}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    record = [f"{folder}/__init__.py", *(f"{libraries.name}/{file}" for file in files)]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in record))
    return libraries / files[0]


def run(program: str, site: Path, *options: str, **environment: str) -> str:
    """Runs a program with a folder of packages in front of all others."""
    env = {name: value for name, value in os.environ.items() if name != "KVNIXL_LIBRARY"}
    env |= {"PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'python/src'}", **environment}
    command = [sys.executable, *options, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


FIND = "from kvffi import _nixl; print(_nixl.library())"
FAIL = """
import kvffi
try:
    kvffi.Agent("a")
except kvffi.LibraryError as error:
    print(error)
"""


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
    assert "/no/such/place" in run(FAIL, tmp_path, KVNIXL_LIBRARY="/no/such/place")


def test_an_agent_loads_what_was_found(tmp_path: Path) -> None:
    library = install(tmp_path, "nixl-cu12")
    assert str(library) in run(FAIL, tmp_path)


def test_a_wheel_without_the_library_is_none(tmp_path: Path) -> None:
    install(tmp_path, "nixl-cu12").unlink()
    assert not run(FIND, tmp_path).startswith(str(tmp_path))


def test_of_two_folders_the_first_counts_as_it_does_for_imports(tmp_path: Path) -> None:
    first, second = (install(tmp_path / folder, "nixl") for folder in ("a", "b"))
    assert run(f"import sys; sys.path.append({str(tmp_path / 'b')!r})\n" + FIND, tmp_path / "a") == str(first)
    assert run(FIND, tmp_path / "b") == str(second)


def refusal(site: Path) -> str:
    """Why an agent cannot be made where nothing but a folder of packages may have NIXL."""
    text = run(FAIL, site, "-S", PATH="", VIRTUAL_ENV="", LD_LIBRARY_PATH="")
    if not text:
        pytest.skip("NIXL is installed on this machine, outside of Python")
    return text


def test_a_wheel_that_is_too_old_is_named_with_what_to_install(tmp_path: Path) -> None:
    install(tmp_path, "nixl-cu12", "0.8.0", ("libnixl.so", "libnixl_common.so"))
    text = refusal(tmp_path)
    assert f"nixl-cu12 0.8.0 in {tmp_path} is too old: it has no libnixl_capi.so" in text
    assert "pip install --no-deps 'nixl-cu12>=1.5.1'" in text


def test_a_wheel_that_has_lost_the_library_is_named(tmp_path: Path) -> None:
    install(tmp_path, "nixl-cu12", files=("libnixl_capi.so", "libnixl.so")).unlink()
    assert f"nixl-cu12 1.5.1 in {tmp_path} is incomplete: its libnixl_capi.so is missing" in refusal(tmp_path)


def test_a_python_without_a_wheel_says_which_python_it_is(tmp_path: Path) -> None:
    # `nixl` itself carries no libraries, it is not a wheel that is too old.
    install(tmp_path, "nixl", files=("other.so",))
    text = refusal(tmp_path)
    prefix = run("import sys; print(sys.prefix)", tmp_path, "-S")
    assert f"{prefix} has no NIXL wheel (pip install --no-deps 'nixl-cu12>=1.5.1')" in text
    assert "too old" not in text


@pytest.mark.parametrize(("version", "told"), [((3, 9), True), ((3, 10), False)])
def test_only_a_python_that_has_no_new_wheel_is_told_so(tmp_path: Path, version: tuple[int, int], told: bool) -> None:
    program = f"""
import sys
from kvffi import _nixl
sys.version_info = {version}
print(_nixl.lack())
"""
    assert ("not for Python 3.9" in run(program, tmp_path, "-S")) == told


def test_a_place_that_is_given_is_all_that_is_spoken_of(tmp_path: Path) -> None:
    install(tmp_path, "nixl-cu12", "0.8.0", ("libnixl.so",))
    assert "0.8.0" not in run(FAIL, tmp_path, "-S", KVNIXL_LIBRARY="/no/such/place")
    given = FAIL.replace('"a"', '"a", nixl=kvffi.NixlOptions(library="/no/such/place")')
    text = run(given, tmp_path, "-S")
    assert "/no/such/place" in text
    assert "0.8.0" not in text


def test_every_page_and_the_error_install_the_version_that_is_tested(tmp_path: Path) -> None:
    tested = re.search(r"^NIXL_VERSION=(\S+)$", (ROOT / "scripts/deps.sh").read_text(), re.MULTILINE)
    assert tested
    pages = [ROOT / "README.md", ROOT / "python/README.md", *(ROOT / "examples/python").glob("*.py")]
    texts = [*(page.read_text() for page in pages), run("from kvffi import _nixl; print(_nixl.lack())", tmp_path, "-S")]
    commands = [command for text in texts for command in re.findall(r"pip install [^\n`)&]*nixl-cu12[^\s`)]*", text)]
    assert len(commands) >= 6
    for command in commands:
        assert command == f"pip install --no-deps 'nixl-cu12>={tested[1]}'", command


FORK = """
import multiprocessing, os, sys
import kvffi

def make(results):
    try:
        with kvffi.Agent("child"):
            results.send("made")
    except kvffi.Forked as error:
        results.send(str(error))

def child(method):
    context = multiprocessing.get_context(method)
    results, end = context.Pipe(duplex=False)
    process = context.Process(target=make, args=(end,))
    process.start()
    end.close()
    said = results.recv()
    process.join()
    return said

if __name__ == "__main__":
    with kvffi.Agent("parent"):
        print(child("fork"))
    print(child("fork"))
    print(child("spawn"))
"""


def test_an_agent_on_nixl_is_refused_in_a_fork_of_a_process_that_had_one(tmp_path: Path) -> None:
    (tmp_path / "forks.py").write_text(FORK)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python/src")}
    command = [sys.executable, str(tmp_path / "forks.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    *forked, spawned = done.stdout.splitlines()
    assert len(forked) == 2
    for said in forked:
        assert said.startswith("KVFFI_ERR_FORKED: the parent process made an agent on NIXL before it forked this one")
        assert "spawn or forkserver" in said
    assert spawned == "made"
