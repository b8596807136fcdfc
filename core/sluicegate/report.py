"""Results of commands: one document for programs, tables and lines for people.

Every document is a `TypedDict` beside the code that builds it, registered with `document`; the
reference page and the tests read the types. Fields of several documents, or of one that several
kinds of targets print, are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, TypeVar

from sluicegate.findings import Finding

Cell = str | int | float | None
_Class = TypeVar("_Class", bound=type)


class DocumentType(NamedTuple):
    """The version of a document, and its type; several if it comes in different shapes."""

    version: int
    shapes: tuple[type, ...]


DOCUMENTS: dict[str, DocumentType] = {}
"""The documents of the modules that were imported so far, by schema."""


def document(schema: str, *, version: int) -> Callable[[_Class], _Class]:
    """Register a `TypedDict` as the type, or one of the types, of the documents of a schema."""

    def register(shape: _Class) -> _Class:
        before = DOCUMENTS[schema].shapes if schema in DOCUMENTS else ()
        if any(each.__module__ != shape.__module__ for each in before):
            raise ValueError(f"{schema} is registered in two modules")
        DOCUMENTS[schema] = DocumentType(version, (*before, shape))
        return shape

    return register


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names; without `header` it is a list of fields and values."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    header: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """A result. `document` is complete; `tables` show it to people and pipes.

    A report that can have findings passes them, even if there are none: every mode of output
    shows them in its own way. `lines` follow the tables on a terminal. `text`, for results that
    are a file's content, is printed unchanged instead of tables. `version` grows when a field of
    the document changes its meaning or is removed.
    """

    schema: str
    document: Mapping[str, Any]
    tables: Sequence[Table] = ()
    findings: Sequence[Finding] | None = None
    lines: Sequence[str] = ()
    text: str | None = None
    version: int = 1


class FindingDocument(TypedDict):
    """One finding."""

    code: str  # stable, see [findings](findings.md)
    severity: str  # `error`, `warning` or `note`
    place: str  # the file, or what it is about
    detail: str  # what was found
    repair: str  # the command to type, or empty


class VerifyFields(TypedDict):
    """What `verify` says of a checkpoint besides its findings, which the console adds."""

    checkpoint: str
    read_data: bool  # whether the content of state files was read, or only names and sizes
    intact: bool  # no finding is an error


@document("sluicegate.verify", version=1)
class VerifyDocument(VerifyFields):
    """Whether a checkpoint is intact, and what is not."""

    findings: list[FindingDocument]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference; None on a side where it is absent."""

    what: str
    left: str | None
    right: str | None


class DifferenceDocument(TypedDict):
    """One difference."""

    what: str
    left: str | None  # null: not on this side
    right: str | None  # null: not on this side


@document("sluicegate.diff", version=1)
class DiffDocument(TypedDict):
    """The differences of two batches, snapshots or checkpoints."""

    left: str
    right: str
    differences: list[DifferenceDocument]


def differences_report(left: str, right: str, found: Sequence[Difference]) -> Report:
    """Two sides, and their differences."""
    rows = [(each.what, each.left, each.right) for each in found]
    document: DiffDocument = {
        "left": left,
        "right": right,
        "differences": [{"what": d.what, "left": d.left, "right": d.right} for d in found],
    }
    return Report(
        schema="sluicegate.diff",
        document=document,
        tables=[Table(("what", "left", "right"), rows, title=f"{left} against {right}")],
        lines=[] if rows else [f"{left} and {right} do not differ."],
    )
