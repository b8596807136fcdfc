"""Legacy checkpoint files (format v1) as targets: one file, which is only read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypedDict

from sluicegate import units
from sluicegate.errors import Corrupt
from sluicegate.legacy import v1
from sluicegate.legacy.v1 import V1Checkpoint
from sluicegate.report import Report, Table, VerifyFields, document
from sluicegate.target import QUICK, Candidate, Reading, Target, TargetKind


@document("sluicegate.v1-checkpoint", version=1)
class V1Document(TypedDict):
    """The content of a legacy checkpoint file."""

    file: str
    sequence: int  # the last one that is included
    watermark_ns: int  # 0: none
    event_count: int
    operators: dict[str, int]  # bytes of the state of each
    sources: Mapping[str, int]  # the next offset of each


class V1File(Target):
    """A legacy checkpoint file."""

    kind: ClassVar = TargetKind.V1_CHECKPOINT

    @classmethod
    def detect(cls, found: Candidate) -> str | None:
        if found.file is None:
            return None
        try:
            checkpoint = v1.decode(found.data, found.file)
        except Corrupt:
            return None
        return f"it decodes as one, at sequence {checkpoint.sequence}"

    def inspect(self, at: int | None = None) -> Report:
        del at
        return _report(self.uri, v1.read(self.uri)[0])

    def verify(self, reading: Reading = QUICK) -> Report:
        del reading
        v1.read(self.uri)
        document: VerifyFields = {"checkpoint": self.uri, "read_data": True, "intact": True}
        return Report(
            schema="sluicegate.verify",
            document=document,
            findings=[],
            lines=[f"{self.uri}: intact."],
        )


def _report(uri: str, checkpoint: V1Checkpoint) -> Report:
    """The content of a legacy checkpoint file."""
    facts: list[tuple[str, str | int | None]] = [
        ("file", uri),
        ("format", "legacy checkpoint (v1)"),
        ("last sequence included", checkpoint.sequence),
        (
            "watermark",
            units.utc(checkpoint.watermark_ns / 1e9) if checkpoint.watermark_ns else None,
        ),
        ("events", checkpoint.event_count),
    ]
    operators = [(n, units.size(len(state))) for n, state in sorted(checkpoint.operators.items())]
    document: V1Document = {
        "file": uri,
        "sequence": checkpoint.sequence,
        "watermark_ns": checkpoint.watermark_ns,
        "event_count": checkpoint.event_count,
        "operators": {name: len(state) for name, state in checkpoint.operators.items()},
        "sources": checkpoint.sources,
    }
    return Report(
        schema="sluicegate.v1-checkpoint",
        document=document,
        tables=[
            Table(("field", "value"), facts, header=False),
            Table(("operator", "state"), operators),
            Table(("source", "next offset"), sorted(checkpoint.sources.items())),
        ],
    )


ADAPTER = V1File
