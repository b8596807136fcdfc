"""The names of the files in an offset store."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sluicegate.errors import InvalidName
from sluicegate.offsets.record import COMMIT, Record
from sluicegate.storage import validate_name

SUFFIX = ".offsets"
_KEPT = re.compile(r"(?P<consumer>.+)\.(?P<sequence>\d{20})\.(?P<kind>version|change)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Kept:
    """An older record that is kept, by its number and file name."""

    sequence: int
    name: str


def sort_names(names: Iterable[str]) -> dict[str, list[Kept]]:
    """Every consumer of which there is a file, with its kept records, oldest first."""
    found: dict[str, list[Kept]] = {}
    for name in names:
        if match := _KEPT.fullmatch(name):
            kept = Kept(int(match["sequence"]), name)
            found.setdefault(match["consumer"], []).append(kept)
        elif name.endswith(SUFFIX):
            found.setdefault(name.removesuffix(SUFFIX), [])
    return {name: sorted(kept) for name, kept in found.items() if _is_name(name)}


def kept_name(record: Record, *, other: bool = False) -> str:
    """The name under which a record is kept; `other`: as if it were of the other kind."""
    kind = "version" if (record.kind == COMMIT) is not other else "change"
    return f"{record.consumer}.{record.sequence:020d}.{kind}"


def _is_name(name: str) -> bool:
    try:
        validate_name(name)
    except InvalidName:
        return False
    return True
