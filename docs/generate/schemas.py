"""The page of what `--json` prints, from the types of documents beside the code that builds them.

Of an object inside another the fields are `outer.field`, of a list of objects `list[].field`. The
meaning of a field is the comment behind it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import getsource
from types import ModuleType, NoneType, UnionType
from typing import (
    Any,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from generate.tree import Command
from sluicegate.report import DOCUMENTS, DocumentType, FindingDocument

_WORDS = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    NoneType: "null",
    Any: "anything",
}
_MADE_BY = "<!-- Made by docs/generate; do not edit. -->\n"
_ABOUT = """
# Documents

With `--json` a command prints one document, whose `schema` names what it is. `version` grows when
a field changes its meaning or goes away; fields that are added do not change it. An error is a
document on standard error. Each of a list of findings has
"""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object; some objects of its type may leave it out."""

    type: Any
    left_out: bool
    meaning: str


@cache
def fields_of(shape: type) -> dict[str, Field]:
    """The fields of a `TypedDict` and of those that it extends."""
    fields = {}
    comments = dict(_comments(shape))
    for name, hint in get_type_hints(shape, include_extras=True).items():
        # The class itself does not know: its annotations are text, which it does not read.
        may_lack = get_origin(hint) is NotRequired
        kind = get_args(hint)[0] if may_lack else hint
        fields[name] = Field(kind, may_lack, comments.get(name, ""))
    return fields


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of any other type, itself."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def in_words(kind: Any) -> str:
    """A type in words."""
    words = dict.fromkeys(_word(each) for each in alternatives(kind))
    return " or ".join(sorted(words, key=lambda word: word == "null"))


def page(root: Command) -> str:
    """Every schema: the commands that print it, and its fields."""
    commands = list(root.leaves())
    about = "".join(f"- `{n}`: {f.meaning}\n" for n, f in fields_of(FindingDocument).items())
    sections = {}
    for name, found in DOCUMENTS.items():
        by = [command for command in commands if name in command.documents]
        first = commands.index(by[0]) if by else len(commands)
        sections[first, name] = _section(name, found, by)
    return "\n".join([_MADE_BY + _ABOUT, about, *(text for _, text in sorted(sections.items()))])


def _section(name: str, found: DocumentType, commands: Sequence[Command]) -> str:
    by = ", ".join(f"`sluicegate {' '.join(each.path)}`" for each in commands)
    what = " ".join((shape.__doc__ or "").strip() for shape in found.shapes)
    rows = (
        f"| `{name}` | {in_words(f.type)}{', or left out' if f.left_out else ''} | {f.meaning} |\n"
        for name, f in _rows(found.shapes)
    )
    table = "| field | type | meaning |\n| --- | --- | --- |\n" + "".join(rows)
    printed = f"Printed by {by or 'any command'}."
    return f"## {name}, version {found.version}\n\n{what}\n\n{printed}\n\n{table}"


def _rows(shapes: Sequence[type], before: str = "") -> Iterator[tuple[str, Field]]:
    """The fields of objects of these types, then the fields of the objects in them."""
    fields = _merged([fields_of(shape) for shape in shapes])
    for name, field in fields.items():
        yield before + name, field
    for name, field in fields.items():
        for path, inner in _objects(field.type).items():
            yield from _rows(inner, f"{before}{name}{path}.")


def _merged(shapes: Sequence[Mapping[str, Field]]) -> dict[str, Field]:
    merged = {}
    for name in dict.fromkeys(name for fields in shapes for name in fields):
        found = [fields[name] for fields in shapes if name in fields]
        merged[name] = Field(
            Union[tuple(each.type for each in found)],  # noqa: UP007 - of any number
            len(found) < len(shapes) or any(each.left_out for each in found),
            next((each.meaning for each in found if each.meaning), ""),
        )
    return merged


def _objects(kind: Any) -> dict[str, list[type]]:
    """The types of the objects in values of a type, by how to get at them."""
    found: dict[str, list[type]] = {}
    for each in alternatives(kind):
        # Findings are described once, at the top of the page.
        if is_typeddict(each) and each is not FindingDocument:
            found.setdefault("", []).append(each)
        elif get_origin(each) is list:
            for path, inner in _objects(get_args(each)[0]).items():
                found.setdefault(f"[]{path}", []).extend(inner)
    return found


def _word(kind: Any) -> str:
    if kind in _WORDS:
        return _WORDS[kind]
    if is_typeddict(kind):
        return "finding" if kind is FindingDocument else "object"
    if (outer := get_origin(kind)) is tuple:
        return "list"
    inner = get_args(kind)[-1]
    word = "list" if outer is list else "object"
    return word if inner is Any else f"{word} of {_many(in_words(inner))}"


def _many(words: str) -> str:
    """More than one of each: `lists of integers or nulls`."""
    each = (word.partition(" ") for word in words.split(" or "))
    return " or ".join(f"{first}s{space}{rest}" for first, space, rest in each)


def _comments(shape: type) -> Iterator[tuple[str, str]]:
    """The fields of a class and of those that it extends that have a comment on their line."""
    module = sys.modules[shape.__module__]
    lines, classes = _parsed(module)
    for base in classes[shape.__name__].bases:
        if isinstance(base, ast.Name) and is_typeddict(extended := getattr(module, base.id)):
            yield from _comments(extended)
    for node in classes[shape.__name__].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            _, mark, comment = lines[node.lineno - 1].partition("  # ")
            if mark:
                yield node.target.id, comment.strip()


@cache
def _parsed(module: ModuleType) -> tuple[list[str], dict[str, ast.ClassDef]]:
    source = getsource(module)
    nodes = ast.walk(ast.parse(source))
    return source.splitlines(), {
        node.name: node for node in nodes if isinstance(node, ast.ClassDef)
    }
