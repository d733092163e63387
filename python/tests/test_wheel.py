"""The wheel: one for all Pythons, with the library in it, and the README's snippet runs where only it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kvffi
from conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built of the library that the tests use."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "wheel", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT / "python")]
    subprocess.run(command, check=True, timeout=300)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh virtual environment with the wheel and numpy."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=300)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--retries", "10"]
    subprocess.run([*command, f"{wheel}[numpy]"], check=True, timeout=300)
    return python


def run(python: Path, *program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program where neither the sources, nor the library of the build, nor its NIXL are to be seen."""
    hidden = ("PYTHONPATH", "KVFFI_LIBRARY", "KVNIXL_LIBRARY", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [str(python), "-I", *program]
    return subprocess.run(command, env=env, cwd=python.parent, capture_output=True, text=True, timeout=120)


def test_one_wheel_is_for_all_pythons_and_carries_the_library(wheel: Path) -> None:
    version = kvffi.version()
    assert wheel.name.startswith(f"kvffi-{version}-py3-none-linux_")
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert {"kvffi/libkvffi.so", "kvffi/py.typed", "kvffi/__init__.py", "kvffi/_declarations.py"} <= set(names)
    # Nobody who has only the wheel can follow a link to a file.
    (metadata,) = (archive.read(name).decode() for name in names if name.endswith("/METADATA"))
    assert "# kvffi for Python" in metadata
    assert "](" not in metadata


def test_an_installed_wheel_uses_its_own_library(python: Path) -> None:
    done = run(python, "-c", "import kvffi; print(kvffi.version(), kvffi.library_path())")
    version, path = done.stdout.split()
    assert version == kvffi.version()
    assert Path(path).is_relative_to(python.parents[1])


PLAN = """
import sys
sys.path.insert(0, sys.argv[1])
import kvffi
arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
arrangement.add_pool(kvffi.Pool("blhnc", 16))
arrangement.add_layer("layers.0", kvffi.Page.mla(), arrangement.add_group(64))
spec = arrangement.build([1 << 32])
answer = kvffi.Pair(spec, spec).answer(kvffi.Request("read", local={0: [1, 2]}, remote={0: [3, 4]}))
print([each.len for each in answer.descriptor_structs()])
"""


def other_pythons() -> list[str]:
    """Other Pythons of this machine, from the oldest that is promised on."""
    found = (shutil.which(f"python3.{minor}") for minor in range(9, 20))
    asked = (path for path in found if path and subprocess.run([path, "-V"], capture_output=True).returncode == 0)
    return sorted(set(asked))


def test_the_wheel_runs_on_every_python_of_this_machine(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for python in (sys.executable, *other_pythons()):
        done = run(Path(python), "-c", PLAN, str(tmp_path))
        assert (done.stdout, done.stderr) == ("[147456]\n", ""), python


def readme_snippets() -> list[str]:
    blocks = (ROOT / "README.md").read_text().split("```python\n")[1:]
    return [block.split("```")[0] for block in blocks]


def test_the_readme_s_snippet_is_an_example_and_runs_in_a_fresh_environment(python: Path) -> None:
    snippets = readme_snippets()
    examples = [path.read_text() for path in (ROOT / "examples/python").glob("*.py")]
    assert snippets
    for snippet in snippets:
        assert any(snippet in example for example in examples), snippet
        done = run(python, "-c", snippet)
        assert (done.returncode, done.stderr) == (0, "")
        assert "[442368 221184]" in done.stdout


def nixl_wheel() -> Path | None:
    """The folder of packages that holds the build's NIXL, if that is a wheel."""
    library = Path(os.environ.get("KVNIXL_LIBRARY", ""))
    folders = [folder for folder in (library, *library.parents) if list(folder.glob("nixl*.dist-info"))]
    return folders[0].resolve() if folders else None


def test_nixl_is_found_in_a_wheel_of_a_fresh_environment(python: Path) -> None:
    packages = nixl_wheel()
    if packages is None:
        pytest.skip("the build's NIXL is no wheel: KVNIXL_LIBRARY names none")
    # As good as installed, without unpacking it another time.
    (site,) = python.parents[1].glob("lib/python3*/site-packages")
    (site / "nixl.pth").write_text(f"{packages}\n")
    try:
        found = run(python, "-c", "from kvffi import _nixl; print(_nixl.library())").stdout
        done = run(python, str(ROOT / "examples/python/03_transfer.py"))
    finally:
        (site / "nixl.pth").unlink()
    assert done.returncode == 0, done.stderr
    assert "0 bytes wrong" in done.stdout
    assert Path(found.strip()).is_relative_to(packages)
