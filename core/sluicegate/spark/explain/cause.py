"""What a cause is: how it is recognised in a log, and what an operator should do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from sluicegate.findings import Rule

LAST_RESORT = "*"
VERIFY = "checkpoint verify {checkpoint}"
VERIFY_DATA = "checkpoint verify {checkpoint} --read-data"


class Site(Enum):
    """Where in Spark an exception was thrown, told by the lines of its stack trace."""

    OFFSETS = r"\.OffsetSeq(?:Log|Metadata)?[.$]|SourceOffset\$?\."
    COMMITS = r"\.Commit(?:Log|Metadata)[.$]"
    METADATA = r"\.StreamMetadata\$"
    SOURCE = r"\.FileStreamSource(?:Log)?[.$]"
    SINK = r"\.(?:FileStreamSink(?:Log)?|ManifestFileCommitProtocol)[.$]"
    SCHEMA = r"\.StateSchemaCompatibilityChecker[.$]"
    STATE = (
        r"\.(?:HDFSBackedStateStoreProvider|StateStoreChangelogReader|StateStore"
        r"|RocksDB(?:FileManager|StateStoreProvider|CheckpointMetadata)?)[.$]"
    )
    START = r"MicroBatchExecution\.\S{0,40}(?:populateStartOffsets|initializeExecution|PrevOffset)"
    # Known, so that what is thrown there is not taken for something above.
    SHUFFLE = r"\.(?:ShuffleBlockFetcherIterator|BlockStoreShuffleReader)[.$]"
    INPUT = r"\.FileScanRDD[.$]"
    ELSEWHERE = r"(?!)"


_FRAME = re.compile("|".join(f"(?P<{site.name}>{site.value})" for site in Site))


def site_of(frame: str) -> Site | None:
    """The site that a line of a stack trace belongs to."""
    found = _FRAME.search(frame)
    return Site[found.lastgroup] if found and found.lastgroup else None


@dataclass(frozen=True)
class Cause:
    """One cause: its finding code, the error classes and texts that tell it, the next command.

    Classes are Spark's own names of errors; texts are expressions for versions that have no name
    for it, and their named groups become facts. With `sites`, a match counts only if the stack
    trace comes from there; with `bare` also, weakly, when there is no trace. A weak match is
    dropped if the log tells of a cause of the same family for certain. `also` are codes that the
    same words can stand for. `first` puts a cause before others: nothing can be mended before.
    """

    rule: Rule
    advice: str
    command: str = VERIFY
    classes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    sites: tuple[Site, ...] = ()
    bare: bool = False
    weak: bool = False
    family: str = ""
    also: tuple[Rule, ...] = ()
    first: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """All that tells this cause, as one expression."""
        names = "|".join(re.escape(name) for name in self.classes)
        named = [rf"(?<![A-Z_])(?:{names})(?![A-Z_])"] if names else []
        return re.compile("|".join((*named, *self.texts)))

    @property
    def is_last_resort(self) -> bool:
        """Whether it is only told if the log tells nothing else."""
        return self.family == LAST_RESORT

    def is_certain(self, site: Site | None) -> bool | None:
        """Whether a match whose trace comes from `site` is certain; None if it is no match."""
        if not self.sites:
            return not self.weak
        if site is None:
            return False if self.bare else None
        return True if site in self.sites else None
