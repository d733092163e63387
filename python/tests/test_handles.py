"""Objects are freed once, not too early, and not used afterwards."""

from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest

import kvffi
from conftest import ROOT, mla
from kvffi._library import functions


class Frees:
    """Counts the calls of a function that frees."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        free = getattr(functions(), name)
        self.count = 0

        def counted(handle: Any) -> None:
            self.count += 1
            free(handle)

        monkeypatch.setattr(functions(), name, counted)


def test_leaving_a_with_block_frees_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frees = Frees("kvffi_spec_free", monkeypatch)
    with mla(1 << 32) as spec:
        assert not spec.closed
    assert (spec.closed, frees.count) == (True, 1)
    spec.close()
    del spec
    gc.collect()
    assert frees.count == 1


def test_the_garbage_collector_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    frees = Frees("kvffi_answer_free", monkeypatch)
    kvffi.Answer()
    gc.collect()
    assert frees.count == 1


def test_a_closed_object_is_refused_everywhere(decode: kvffi.Spec, prefill: kvffi.Spec) -> None:
    pair = kvffi.Pair(decode, prefill)
    answer = kvffi.Answer()
    request = kvffi.Request("read", local={0: [1]}, remote={0: [1]})
    for closed in (decode, answer):
        closed.close()
    for use in (
        decode.to_json,
        decode.plan_local,
        lambda: kvffi.Pair(decode, prefill),
        lambda: kvffi.Pair(prefill, decode),
        lambda: prefill.count_readers([decode]),
        answer.totals,
        answer.descriptors,
        lambda: pair.answer(request, into=answer),
        lambda: pair.verify(answer),
        decode.__enter__,
    ):
        with pytest.raises(ValueError, match="is closed"):
            use()
    # What was made of a closed spec lives.
    assert len(pair.answer(request).descriptors()) == 1


def test_a_close_waits_for_the_calls_of_other_threads() -> None:
    stop = threading.Event()
    specs = [mla(1 << 32)]
    failures: list[BaseException] = []

    def use() -> None:
        while not stop.is_set():
            try:
                specs[0].to_json()
            except ValueError:
                pass
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        closed = specs[0]
        specs[0] = mla(1 << 32)
        closed.close()
    stop.set()
    for thread in threads:
        thread.join(60)
    assert failures == []


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"])
def test_an_object_is_neither_copied_nor_pickled(way: Any, decode: kvffi.Spec) -> None:
    with pytest.raises(TypeError, match="cannot be"):
        way(decode)


@pytest.mark.parametrize("kind", [kvffi.Spec, kvffi.LocalPlan, kvffi.Page])
def test_what_is_made_by_something_else_says_by_what(kind: Any) -> None:
    with pytest.raises(TypeError, match="is made by"):
        kind()


def test_errors_survive_pickling() -> None:
    with pytest.raises(kvffi.JsonError) as caught:
        kvffi.Spec.from_json("{")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is kvffi.JsonError
    assert (again.status, again.name, again.message, again.findings) == caught.value.args
    assert str(again) == str(caught.value)


def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    env = {**os.environ, "PYTHONPATH": str(ROOT / "python/src"), **environment}
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)


def test_objects_may_be_alive_when_the_interpreter_ends() -> None:
    program = "import kvffi; page = kvffi.Page.mla(); kvffi.loop = [kvffi.Answer()]; kvffi.loop.append(kvffi.loop)"
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_library_that_is_missing_is_an_import_error_that_says_what_to_do(tmp_path: Any) -> None:
    done = run("import kvffi; kvffi.version()", KVFFI_LIBRARY=str(tmp_path / "none.so"))
    assert "ImportError" in done.stderr
    assert "set KVFFI_LIBRARY" in done.stderr


def test_a_library_that_is_another_one_is_an_import_error(tmp_path: Any) -> None:
    other = tmp_path / "other.so"
    source = tmp_path / "other.c"
    source.write_text("int kvffi_other(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(other)], check=True, timeout=60)
    done = run("import kvffi; kvffi.version()", KVFFI_LIBRARY=str(other))
    assert "ImportError" in done.stderr
    assert "kvffi_status_name" in done.stderr


def test_planning_needs_no_numpy() -> None:
    program = """
import sys
sys.modules["numpy"] = None
import kvffi
arrangement = kvffi.Arrangement(kvffi.Worker("org/model"))
arrangement.add_pool(kvffi.Pool("blhnc", 16))
arrangement.add_layer("layers.0", kvffi.Page.mla(), arrangement.add_group(64))
memory = bytearray(arrangement.storage_lens()[0])
spec = arrangement.build([memory])
pair = kvffi.Pair(spec, spec)
answer = pair.answer(kvffi.Request("read", local={0: [1, 2]}, remote={0: [3, 4]}))
print([each.len for each in answer.descriptor_structs()])
try:
    answer.descriptors()
except ImportError:
    print("no numpy")
"""
    done = run(program)
    assert (done.stdout, done.stderr) == ("[147456]\nno numpy\n", "")
