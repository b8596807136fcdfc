"""Fields of the JSON lines that Spark's logs consist of, each in every way of being wrong."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]

_SOURCE = re.compile(rb"[^{}\[\]\":]+:(?=[{\[])")
_HUGE = 2**62


def changes(data: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield each change of a field: its class, which field, and the file's new content."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        start = _SOURCE.match(line)
        prefix = start.group() if start else b""
        try:
            document = json.loads(line[len(prefix) :])
        except ValueError:
            continue
        if not isinstance(document, dict):
            continue
        for change, path, changed in _changed(document):
            text = json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()
            content = b"\n".join([*lines[:number], prefix + text, *lines[number + 1 :]])
            yield change, f"{'.'.join(map(str, path))} in line {number + 1}", content


def _changed(document: dict[str, Any]) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    leaves = list(_paths(document, ()))
    for path, value in leaves:
        yield "missing", path, _with(document, path, None, drop=True)
        yield "of another type", path, _with(document, path, _other_type(value))
        for change, other in _sized(value):
            yield change, path, _with(document, path, other)
        partner = _partner(path, value, leaves)
        if partner is not None:
            other_path, other_value = partner
            swapped = _with(document, path, other_value)
            yield "swapped", path, _with(swapped, other_path, value)


def _paths(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield every field, inner ones too; the whole line is none."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*path, index))


def _with(document: dict[str, Any], path: Path, value: Any, *, drop: bool = False) -> Any:
    changed: Any = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if drop:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def _other_type(value: Any) -> Any:
    if isinstance(value, bool):
        return "perhaps"
    if isinstance(value, int):
        return "x"
    if isinstance(value, str):
        return 7
    return [] if isinstance(value, dict) else {}


def _sized(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool):
        yield "larger", not value
    elif isinstance(value, int):
        yield "smaller", value - 1
        yield "smaller", -1
        yield "larger", value + 1
        yield "larger", _HUGE
    elif isinstance(value, str):
        yield "smaller", value[:-1]
        yield "larger", value + "0"
        if value.isdigit():
            yield "smaller", str(int(value) - 1)
            yield "larger", str(int(value) + 1)
    elif isinstance(value, list) and value:
        yield "smaller", value[:-1]
        yield "larger", [*value, value[-1]]
    elif isinstance(value, dict) and value:
        yield "smaller", {}


def _partner(path: Path, value: Any, leaves: list[tuple[Path, Any]]) -> tuple[Path, Any] | None:
    """Return the next field of the same type and another value that does not contain this one."""
    alike = [
        (other, there)
        for other, there in leaves
        if type(there) is type(value)
        and there != value
        and other[: len(path)] != path
        and path[: len(other)] != other
    ]
    following = [each for each in alike if each[0] > path] if _sortable(alike, path) else alike
    return next(iter(following or alike), None)


def _sortable(alike: list[tuple[Path, Any]], path: Path) -> bool:
    kinds = {tuple(type(key) for key in each) for each in (path, *(other for other, _ in alike))}
    return len({len(kind) for kind in kinds}) == 1 and len(kinds) == 1
