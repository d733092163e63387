"""Writes src/kvffi/_declarations.py from include/kvffi.h: its constants, structs and functions, for ctypes.

    python3 python/tools/declarations.py            write the file
    python3 python/tools/declarations.py --check    fail if the file is not what would be written

The header is written by a tool itself, so its shape is regular: no typedef of a function, no union, no bit field.
What this program does not understand is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "kvffi.h"
OUTPUT = ROOT / "python" / "src" / "kvffi" / "_declarations.py"

# C type: ctypes type.
INTEGERS = {
    "int8_t": "c_int8",
    "uint8_t": "c_uint8",
    "int16_t": "c_int16",
    "uint16_t": "c_uint16",
    "int": "c_int",
    "int32_t": "c_int32",
    "uint32_t": "c_uint32",
    "int64_t": "c_int64",
    "uint64_t": "c_uint64",
    "size_t": "c_size_t",
}
FLOATS = {"float": "c_float", "double": "c_double"}

PREAMBLE = '''\
"""Constants, structs and functions of kvffi.h, for ctypes.

Written by tools/declarations.py. Do not edit it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import (
{imports}
)
from typing import Any

from ._checked import Growing, Struct, numbers

# A pointer to anything but a text: None, an address, `byref(...)`, an array or a handle.
Pointer = Any

'''


class Type(NamedTuple):
    """A type as ctypes has it, and as Python code sees it."""

    ctypes: str
    python: str


class Declarations(NamedTuple):
    """What the header declares."""

    constants: dict[str, str]
    structs: dict[str, list[tuple[str, Type]]]
    functions: dict[str, tuple[Type, list[tuple[str, Type]]]]


def parse_type(text: str, aliases: dict[str, str]) -> Type:
    """A C type without a name."""
    words = text.replace("*", " * ").split()
    pointers = words.count("*")
    base = next(word for word in words if word not in ("const", "*", "struct"))
    base = aliases.get(base, base)
    if pointers == 1 and words[:2] == ["const", "char"]:
        return Type("c_char_p", "bytes | None")
    if pointers:
        return Type("c_void_p", "Pointer")
    if base == "void":
        return Type("None", "None")
    if base in INTEGERS:
        return Type(INTEGERS[base], "int")
    if base in FLOATS:
        return Type(FLOATS[base], "float")
    raise SystemExit(f"{HEADER.name}: type {text!r} is not known to this program")


def parse_variable(text: str, aliases: dict[str, str]) -> tuple[str, Type]:
    """A type and a name, such as `const char *name` or `uint8_t id[16]`."""
    match = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[(\w+)\])?", text.strip(), re.DOTALL)
    if match is None:
        raise SystemExit(f"{HEADER.name}: {text!r} is no type and a name")
    kind = parse_type(match[1], aliases)
    if match[3]:
        kind = Type(f"{kind.ctypes} * {match[3]}", "Any")
    return match[2], kind


def parse(header: str) -> Declarations:
    """Everything that the header declares."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    constants: dict[str, str] = {}
    for name, value in re.findall(r"^#define (KVFFI_\w+) (.+)$", text, re.MULTILINE):
        if name.endswith("_INIT"):
            if set(re.sub(r"sizeof\(\w+\)", "", value)) - set("{}, 0"):
                raise SystemExit(f"{HEADER.name}: {name} sets more than the size")
            continue
        value = re.sub(r"UINT(\d+)_MAX", lambda match: f"(1 << {match[1]}) - 1", value)
        value = re.sub(r"UINT(?:8|16|32|64)_C\((\w+)\)", r"\1", value)
        value = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", value)
        if not re.fullmatch(r"[\w\s()<>|+\-\"./]+", value):
            raise SystemExit(f"{HEADER.name}: {name} is {value!r}, which this program does not understand")
        constants[name] = value
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)

    aliases = dict(re.findall(r"^typedef (\w+) (kvffi_\w+);", text, re.MULTILINE))
    aliases = {alias: base for base, alias in aliases.items()}
    structs = {}
    for name, body in re.findall(r"typedef struct (kvffi_\w+) \{(.*?)\n\} \1;", text, re.DOTALL):
        fields = [field for field in body.split(";") if field.strip()]
        structs[name] = [parse_variable(field, aliases) for field in fields]
    text = re.sub(r"typedef struct (kvffi_\w+) \{.*?\n\} \1;", "", text, flags=re.DOTALL)

    functions = {}
    for result, name, parameters in re.findall(
        r"^(\w[\w ]*?[ *]+)(kvffi_\w+)\((.*?)\);", text, re.DOTALL | re.MULTILINE
    ):
        if result.startswith("typedef"):
            continue
        listed = [] if parameters.strip() == "void" else parameters.split(",")
        functions[name] = (parse_type(result, aliases), [parse_variable(item, aliases) for item in listed])
    num_calls = len(re.findall(r"\bkvffi_\w+\(", text))
    if len(functions) != num_calls:
        raise SystemExit(f"{HEADER.name}: {num_calls} functions, of which this program understands {len(functions)}")
    num_structs = len(re.findall(r"^typedef struct \w+ \{", header, re.MULTILINE))
    if len(structs) != num_structs:
        raise SystemExit(f"{HEADER.name}: {num_structs} structs, of which this program understands {len(structs)}")
    return Declarations(constants, structs, functions)


def class_name(struct: str) -> str:
    """`kvffi_zero_range` becomes `ZeroRange`."""
    return "".join(word.capitalize() for word in struct.removeprefix("kvffi_").split("_"))


def write(declarations: Declarations) -> str:
    """The module's text."""
    body = [f"{name} = {value}" for name, value in declarations.constants.items()]
    for name, fields in declarations.structs.items():
        growing = fields[0][0] == "struct_size"
        body += ["", "", f"class {class_name(name)}({'Growing' if growing else 'Struct'}):"]
        body += [f'    """{name}"""', ""]
        body += [f"    {field}: {kind.python}" for field, kind in fields]
        body += ["    _fields_ = ("]
        body += [f'        ("{field}", {kind.ctypes}),' for field, kind in fields]
        body += ["    )"]
    names = ", ".join(f'"{name}": {class_name(name)}' for name in declarations.structs)
    body += ["", "", "# By the name that the header has.", "STRUCTS: dict[str, type[Struct]] = {"]
    body += [f"    {item}," for item in names.split(", ")]
    body += ["}", "", "", "class Functions:", '    """The functions of a library that is loaded."""', ""]
    for name, (result, parameters) in declarations.functions.items():
        kinds = ", ".join(kind.python for _, kind in parameters)
        body += [f"    {name}: Callable[[{kinds}], {result.python}]"]
    body += ["", "    def __init__(self, library: ctypes.CDLL) -> None:"]
    body += ['        """Looks every function up; `AttributeError` names one that the library lacks."""']
    body += ["        for name, result, parameters in SIGNATURES:"]
    body += ["            function = library[name]"]
    body += ["            function.restype = result"]
    body += ["            function.argtypes = tuple(kind for _, kind in parameters)"]
    body += ["            function.numbers = numbers(parameters)  # type: ignore[attr-defined]"]
    body += ["            setattr(self, name, function)"]
    body += [
        "",
        "",
        "# Name, result, parameters with their names.",
        "SIGNATURES: tuple[tuple[str, Any, tuple[tuple[str, Any], ...]], ...] = (",
    ]
    for name, (result, parameters) in declarations.functions.items():
        kinds = ", ".join(f'("{parameter}", {kind.ctypes})' for parameter, kind in parameters)
        body += [f'    ("{name}", {result.ctypes}, ({kinds}{"," if len(parameters) == 1 else ""})),']
    body += [")", ""]
    text = "\n".join(body)
    imports = "\n".join(f"    {name}," for name in sorted(set(re.findall(r"\bc_\w+", text))))
    return PREAMBLE.format(imports=imports) + "\n" + text


def main() -> None:
    """Writes the file, or checks it."""
    parser = argparse.ArgumentParser(description="writes the declarations of kvffi.h for ctypes")
    parser.add_argument("--check", action="store_true", help="fail if the file is not what would be written")
    text = write(parse(HEADER.read_text()))
    if not parser.parse_args().check:
        OUTPUT.write_text(text)
    elif OUTPUT.read_text() != text:
        sys.exit(f"{OUTPUT.name} is not what {HEADER.name} says; run python3 python/tools/declarations.py")


if __name__ == "__main__":
    main()
