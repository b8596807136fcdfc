"""Assignment files as targets: plain JSON, CSV or Kafka's form, such as other tools write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from sluicegate.target import Candidate, Target, TargetKind

if TYPE_CHECKING:
    from sluicegate.shards.journal import FileJournal, FileShards

# As `shards.files` reads them: JSON with one of these keys first, or CSV.
_BEGINS = re.compile(
    rb'(\xef\xbb\xbf)?\s*(\{\s*"(\d+|version|nodes|owners|partitions|assignment_version)"\s*:'
    rb"|\[\s*(\"|null)|(shard|\d+)\s*,)",
)


class AssignmentFileTarget(Target):
    """A file that assigns shards to nodes."""

    kind: ClassVar = TargetKind.ASSIGNMENT_FILE

    @classmethod
    def detect(cls, found: Candidate) -> str | None:
        return "it starts like one" if found.file and _BEGINS.match(found.data) else None

    def journal(self) -> FileJournal:
        from sluicegate.shards.journal import FileJournal

        return FileJournal(self.uri, read_only=self.options.read_only)

    def shards(self) -> FileShards:
        from sluicegate.shards.journal import FileShards

        return FileShards(self.uri, self.journal())


ADAPTER = AssignmentFileTarget
