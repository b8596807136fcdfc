"""The page of what `--json` prints, from the shapes of documents that the tests have seen.

`schemas.json` has for each schema the commands that print it, and for each field the types that
its values had: those of JSON, and `absent`. Of a list of objects the fields are `list[].field`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from generate.tree import Command

PLACE = Path(__file__).with_name("schemas.json")
ABSENT = "absent"
_ENVELOPE = ("schema", "version")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object"}
_MADE_BY = "<!-- Made by docs/generate; do not edit. -->\n"
_ABOUT = """
# Documents

With `--json` a command prints one document, whose `schema` names what it is. `version` grows when
a field changes its meaning or goes away; fields that are added do not change it. An error is a
document on standard error. What stands here was seen in tests. Each of a list of findings has
"""

FINDING = {
    "code": "stable, see [findings](findings.md)",
    "severity": "`error`, `warning` or `note`",
    "place": "the file, or what it is about",
    "detail": "what was found",
    "repair": "the command to type, or empty",
}
Fields = Mapping[str, Sequence[str]]


def read() -> dict[str, Any]:
    """Every known schema by its name."""
    found: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))
    return found


def shape(documents: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """The types of every field that one of these documents has."""
    bare = [{k: v for k, v in each.items() if k not in _ENVELOPE} for each in documents]
    found = _fields(bare, "")
    for name in list(found):
        lists = [each[name] for each in bare if isinstance(each.get(name), list)]
        items = [item for each in lists for item in each]
        if items and all(isinstance(item, dict) for item in items) and name != "findings":
            found |= _fields(items, f"{name}[].")
    return found


def _fields(objects: Sequence[Mapping[str, Any]], before: str) -> dict[str, set[str]]:
    names = dict.fromkeys(name for each in objects for name in each)
    return {
        before + name: {_type(name, each[name]) if name in each else ABSENT for each in objects}
        for name in names
    }


def _type(name: str, value: Any) -> str:
    if value is None:
        return "null"
    if name == "findings" and all(item.keys() == FINDING.keys() for item in value):
        return "list of findings"
    if isinstance(value, list):
        kinds = sorted({_type("", item) for item in value})
        return f"list of {_many(kinds[0])}" if len(kinds) == 1 else "list"
    return _TYPES[type(value)]


def _many(kind: str) -> str:
    return kind.replace("list", "lists", 1) if kind.startswith("list") else f"{kind}s"


def differences(known: Fields, seen: Mapping[str, set[str]]) -> Iterator[str]:
    """What documents have that is not known of their schema, and what they lack."""
    for name, types in seen.items():
        # A list that is empty tells nothing of what it may hold.
        if known.get(name.partition("[].")[0]) == ["list"]:
            continue
        allowed = {*known.get(name, ()), *(["list"] if name in known else [])}
        if more := types - allowed:
            yield f"{name} is {' and '.join(sorted(more))}"
    for name, had in known.items():
        parent = name.partition("[].")[0] if "[]." in name else None
        judged = parent is None or any(each.startswith(f"{parent}[].") for each in seen)
        if name not in seen and judged and ABSENT not in had:
            yield f"{name} is {ABSENT}"


def merged(known: Fields, seen: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """What is known after documents of this shape were seen."""
    lacking = {each.split(" is ")[0] for each in differences(known, seen) if each.endswith(ABSENT)}
    result = {}
    for name in dict.fromkeys([*known, *seen]):
        types = {*known.get(name, ()), *seen.get(name, ())}
        if name in lacking:
            types.add(ABSENT)
        if any(each.startswith("list of") for each in types):
            types.discard("list")
        result[name] = sorted(types)
    return result


def page(root: Command) -> str:
    """Every schema: the commands that print it, and its fields."""
    order = {" ".join(command.path): number for number, command in enumerate(root.leaves())}
    known = read()
    about = "".join(f"- `{name}`: {text}\n" for name, text in FINDING.items())
    sections = {}
    for name, schema in known.items():
        commands = sorted((c for c in schema["commands"] if c in order), key=order.__getitem__)
        first = order[commands[0]] if commands else len(order)
        sections[first, name] = _section(name, schema, commands)
    return "\n".join([_MADE_BY + _ABOUT, about, *(text for _, text in sorted(sections.items()))])


def _section(name: str, schema: Any, commands: list[str]) -> str:
    told = ", ".join(f"`sluicegate {command}`" for command in commands)
    rows = (f"| `{field}` | {_told(types)} |\n" for field, types in schema["fields"].items())
    by = f"Printed by {told or 'any command'}."
    table = "| field | type |\n| --- | --- |\n" + "".join(rows)
    return f"## {name}, version {schema['version']}\n\n{by}\n\n{table}"


def _told(types: Sequence[str]) -> str:
    said = [each for each in types if each not in (ABSENT, "null")]
    said += ["null"] if "null" in types else []
    return " or ".join(said) + (", or left out" if ABSENT in types else "")
