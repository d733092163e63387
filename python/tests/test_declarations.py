"""The declarations are those of the header, and lie where a C compiler puts them."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import kvffi
from conftest import ROOT
from kvffi import _declarations, _names
from kvffi._handle import call
from kvffi._library import functions


def test_the_declarations_are_what_the_generator_writes() -> None:
    command = [sys.executable, str(ROOT / "python/tools/declarations.py"), "--check"]
    subprocess.run(command, check=True, timeout=60)


def test_every_struct_and_constant_is_what_a_c_compiler_makes_of_the_header(tmp_path: Path) -> None:
    lines = ["#include <stdio.h>", '#include "kvffi.h"', "int main(void) {"]
    expected = []
    for name, struct in _declarations.STRUCTS.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append(ctypes.sizeof(struct))
        for field in struct._fields_:
            lines.append(f'printf("%zu %zu\\n", offsetof({name}, {field[0]}), sizeof((({name} *)0)->{field[0]}));')
            expected += [getattr(struct, field[0]).offset, getattr(struct, field[0]).size]
    constants = {name: value for name, value in vars(_declarations).items() if name.startswith("KVFFI_")}
    for name in constants:
        lines.append(f'printf("%lld\\n", (long long)({name}));')
    expected += [ctypes.c_int64(value).value for value in constants.values()]
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, "return 0; }"]))
    program = tmp_path / "layout"
    command = ["cc", "-std=c11", "-I", str(ROOT / "include"), str(source), "-o", str(program)]
    subprocess.run(command, check=True, timeout=60)
    printed = subprocess.run([str(program)], check=True, capture_output=True, timeout=60).stdout
    assert [int(number) for number in printed.split()] == expected
    assert len(_declarations.STRUCTS) >= 20
    assert len(constants) >= 60


def test_every_exported_symbol_is_declared() -> None:
    lines = (ROOT / "kvffi/symbols.txt").read_text().splitlines()
    symbols = [line for line in lines if line and not line.startswith("#")]
    assert sorted(name for name, _, _ in _declarations.SIGNATURES) == sorted(symbols)


def test_every_function_is_in_the_library() -> None:
    library = functions()
    assert all(hasattr(library, name) for name, _, _ in _declarations.SIGNATURES)


@pytest.mark.parametrize(
    ("prefix", "words"),
    [
        ("OP", _names.Op),
        ("MEM", _names.Mem),
        ("USAGE", _names.Usage),
        ("ROLE", _names.Role),
        ("SHARDING", _names.Sharding),
        ("KIND", _names.Kind),
        ("ELEMENT", _names.Element),
        ("SPAN", _names.Span),
        ("ROWS", _names.Rows),
        ("PACKING", _names.Packing),
        ("CONV", _names.Conv),
        ("LAYOUT", _names.Layout),
        ("LOOPBACK", _names.Fault),
        ("LOCALITY", _names.Locality),
        ("BARRIER", _names.Barrier),
        ("HISTOGRAM", _names.Histogram),
        ("LOST_READERS", _names.LostReaders),
        ("LOG", _names.LogLevel),
        ("EVENT", kvffi.EventKind),
        ("WHY", kvffi.Why),
    ],
)
def test_the_words_are_those_of_the_header(prefix: str, words: object) -> None:
    assert list(typing.get_args(words)) == list(_names.words(prefix))


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_number_that_does_not_fit_a_parameter_is_refused(value: int) -> None:
    with pytest.raises(kvffi.ArgumentError, match=str(value)):
        call(functions().kvffi_abi_check, value)


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_a_number_that_does_not_fit_a_field_is_refused(value: int) -> None:
    with pytest.raises(OverflowError, match=f"base is {value}"):
        _declarations.Storage(base=value)


def test_a_field_that_a_struct_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="Storage has no field address"):
        _declarations.Storage(address=1)
