"""Every document that a test sees is what its type says, and its command says that it prints it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, is_typeddict

from generate.schemas import alternatives, fields_of, in_words

from sluicegate.report import DOCUMENTS, DocumentType
from sluicegate_cli import table
from sluicegate_cli.output.console import ERROR_SCHEMA
from sluicegate_cli.shell import load_module

ROOT = Path(__file__).resolve().parents[2]
_ENVELOPE = ("schema", "version")
_BEGINS = re.compile(r"^\{", re.MULTILINE)
_REGISTERED = re.compile(r'^@document\("([^"]+)"', re.MULTILINE)
_PLAIN = {str: (str,), bool: (bool,), int: (int,), float: (int, float), type(None): (type(None),)}


def heed(arguments: Sequence[str], printed: str) -> None:
    """Check the documents among what a command printed."""
    for document in documents(printed):
        check(document)
        check_named(command_of(arguments), document["schema"])


def check(document: dict[str, Any]) -> None:
    """Fail if a document is not what its type says."""
    name = document["schema"]
    known = type_of(name)
    assert document["version"] == known.version, f"{name} is of version {document['version']}"
    fields = {key: value for key, value in document.items() if key not in _ENVELOPE}
    found = min((list(differences(shape, fields, "")) for shape in known.shapes), key=len)
    where = " or ".join(f"{shape.__module__}.{shape.__qualname__}" for shape in known.shapes)
    assert not found, f"{name} is not a {where}: {'; '.join(found)}"


def check_named(command: str | None, schema: str) -> None:
    """Fail if a command prints a document that its `DOCUMENTS` does not name."""
    if schema != ERROR_SCHEMA:
        assert command, f"a document {schema} of an unknown command"
        named = load_module(command).DOCUMENTS
        assert schema in named, f"`{command}` prints {schema}: add it to its DOCUMENTS"


def type_of(schema: str) -> DocumentType:
    """The type of a schema; only its module is imported, because others take long."""
    if schema not in DOCUMENTS:
        assert schema in modules(), f"no type is registered with @document for {schema}"
        import_module(modules()[schema])
    return DOCUMENTS[schema]


@cache
def modules() -> dict[str, str]:
    """The module that registers each schema."""
    found = {}
    for top in (ROOT / "core", ROOT / "cli"):
        for path in top.rglob("*.py"):
            for schema in _REGISTERED.findall(path.read_text(encoding="utf-8")):
                found[schema] = ".".join(path.relative_to(top).with_suffix("").parts)
    return found


def differences(kind: Any, value: Any, at: str) -> Iterator[str]:
    """Where a value is not of a type, each with its path."""
    possible = alternatives(kind)
    found = [list(_differences(each, value, at)) for each in possible]
    if all(found):
        # What is wrong inside says more than that it is wrong.
        inside = [each for each in found if each[0] != _wrong(value, at)]
        yield from min(inside, key=len, default=[f"{_wrong(value, at)}, not {in_words(kind)}"])


def _differences(kind: Any, value: Any, at: str) -> Iterator[str]:
    """The same for a type that is no union; another JSON type is reported alone."""
    outer, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if kind in _PLAIN:
        # Exactly: to Python a boolean is an integer.
        if type(value) not in _PLAIN[kind]:
            yield _wrong(value, at)
    elif outer in (list, tuple):
        if not isinstance(value, list) or (outer is tuple and len(value) != len(inner)):
            yield _wrong(value, at)
            return
        for number, item in enumerate(value):
            yield from differences(inner[number if outer is tuple else 0], item, f"{at}[{number}]")
    elif not isinstance(value, dict):
        yield _wrong(value, at)
    elif is_typeddict(kind):
        yield from _of_fields(kind, value, f"{at}." if at else "")
    else:
        for key, item in value.items():
            yield from differences(inner[1], item, f"{at}.{key}")


def _of_fields(shape: type, value: dict[str, Any], before: str) -> Iterator[str]:
    fields = fields_of(shape)
    for name in value.keys() - fields.keys():
        yield f"{before}{name} is unknown"
    for name, field in fields.items():
        if name in value:
            yield from differences(field.type, value[name], before + name)
        elif not field.left_out:
            yield f"{before}{name} is missing"


def _wrong(value: Any, at: str) -> str:
    return f"{at} is {json.dumps(value)[:80]}"


def documents(printed: str) -> Iterator[dict[str, Any]]:
    """The documents in what was printed, each of which begins a line."""
    decoder, at = json.JSONDecoder(), 0
    while (begins := _BEGINS.search(printed, at)) is not None:
        at = begins.end()
        with suppress(ValueError):
            found, at = decoder.raw_decode(printed, begins.start())
            if str(found.get("schema")).startswith("sluicegate."):
                yield found


def command_of(arguments: Sequence[str]) -> str | None:
    """The command that a command line names."""
    lines = (" ".join(arguments[at : at + count]) for at in range(3) for count in (2, 1))
    return next((line for line in lines if line in table.COMMANDS), None)
