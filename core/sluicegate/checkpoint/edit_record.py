"""The record of an operation on a checkpoint: a frame of kind `change`, `_sluicegate/N.change`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sluicegate import codec
from sluicegate.checkpoint.file_edits import Place
from sluicegate.errors import Corrupt
from sluicegate.process import Who

FORMAT = codec.Format("change", version=1, max_body=256 * 1024 * 1024)
_OPTIONAL = ("reason", "undoes", "plan_digest", "planned_by", "sink")


@dataclass(frozen=True, slots=True)
class Changed:
    """One file of an operation; `index` names its copies below `old/` and `new/`."""

    place: Place
    key: str
    index: int
    had_old: bool
    has_new: bool


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """What an operation does, to which files, for whom; `newest` is the newest batch it leaves."""

    number: int
    at: float
    kind: str
    by: Who
    summary: str
    barrier: str
    newest: int
    files: tuple[Changed, ...]
    reason: str | None = None
    undoes: str | None = None
    plan_digest: str | None = None
    planned_by: str | None = None
    sink: str | None = None

    @property
    def id(self) -> str:
        """How history and undo name it."""
        return f"op-{self.number}"

    @property
    def pruned_name(self) -> str:
        """The file that says that its backups were given up."""
        return f"{self.number:020d}.pruned"

    def with_files(self, files: tuple[Changed, ...]) -> ChangeRecord:
        """The record once its files are staged."""
        return replace(self, files=files)


def encode(record: ChangeRecord) -> bytes:
    """The file of a record."""
    fields: dict[str, Any] = {name: getattr(record, name) for name in _OPTIONAL}
    return codec.encode(
        FORMAT,
        fields
        | {
            "number": record.number,
            "at": record.at,
            "kind": record.kind,
            "by": record.by.fields(),
            "summary": record.summary,
            "barrier": record.barrier,
            "newest": record.newest,
            "files": [
                [file.place.value, file.key, file.index, file.had_old, file.has_new]
                for file in record.files
            ],
        },
    )


def decode(data: bytes, place: str) -> ChangeRecord:
    """The record in a file, or `Corrupt`."""
    fields = codec.decode(FORMAT, data, place)
    try:
        return _record(fields)
    except (KeyError, TypeError, ValueError) as e:
        raise Corrupt(f"{place}: not a record of an operation: {e!r}", place=place) from e


def _record(fields: Mapping[str, Any]) -> ChangeRecord:
    who = Who.from_fields(fields["by"])
    texts = ("kind", "summary", "barrier")
    numbers = ("number", "newest")
    if who is None or not all(isinstance(fields[name], str) for name in texts):
        raise TypeError("a text is missing")
    if not all(isinstance(fields[name], int) for name in numbers):
        raise TypeError("a number is missing")
    return ChangeRecord(
        at=float(fields["at"]),
        by=who,
        files=tuple(
            Changed(Place(place), str(key), int(index), bool(old), bool(new))
            for place, key, index, old, new in fields["files"]
        ),
        **{name: fields[name] for name in (*texts, *numbers, *_OPTIONAL)},
    )
