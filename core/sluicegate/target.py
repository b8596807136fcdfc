"""Targets of commands: a name or a path, its kind, and what it can do.

Every kind is one adapter, a subclass of `Target` in its own package; this module knows only the
names of their modules. Commands call the target and never test its kind.
"""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NotRequired, Self, TypedDict, TypeVar

from sluicegate.config import Config
from sluicegate.errors import (
    NotFound,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.findings import Finding
from sluicegate.storage import Storage, local_root, open_storage

if TYPE_CHECKING:
    from sluicegate.journal import Approval, Entry, Journal, Operation
    from sluicegate.lag import Lag
    from sluicegate.maintenance import RunOptions, Sample, Steps
    from sluicegate.plan import Plan
    from sluicegate.positions import Positions
    from sluicegate.report import Report
    from sluicegate.reset import ResetSpec


class Origin(TypedDict):
    """Where positions come from: a batch, a snapshot, or a commit of a consumer."""

    batch: NotRequired[int]  # Spark checkpoints only
    snapshot: NotRequired[int]  # gated streams only
    consumer: NotRequired[str]  # offset stores only
    sequence: NotRequired[int]  # offset stores only: of the consumer's last commit


class TargetKind(Enum):
    """The kinds of targets, the module of each kind's adapter, and whether it is one file."""

    SPARK_CHECKPOINT = "spark-checkpoint", "sluicegate.checkpoint.target"
    OFFSET_STORE = "offset-store", "sluicegate.offsets.target"
    STREAM = "stream", "sluicegate.stream.target"
    V1_CHECKPOINT = "v1-checkpoint", "sluicegate.legacy.target", True
    ASSIGNMENT_FILE = "assignment-file", "sluicegate.shards.target", True

    _module: str
    is_file: bool

    def __new__(cls, word: str, module: str, is_file: bool = False) -> Self:
        member = object.__new__(cls)
        member._value_ = word
        member._module = module
        member.is_file = is_file
        return member

    @property
    def shown(self) -> str:
        """With its article, for a sentence."""
        return f"{'an' if self.value[0] in 'ao' else 'a'} {self.value}"

    @property
    def adapter(self) -> type[Target]:
        """The class that does everything that depends on the kind."""
        found: type[Target] = import_module(self._module).ADAPTER
        return found


CHAIN = "chain"
"""The directory that identifies a stream's directory."""
# Directories of ours that commands do not work on, by their identity files.
_OTHERS = {
    "sluicegate.log": (
        "an embedded log, the source of streams",
        "name a stream that reads it, or name it as a stream's source in sluicegate.toml",
    ),
    "sluicegate.producer": (
        "the directory of a producer",
        "name a stream or a store; only an application opens a producer's directory",
    ),
}

OnProgress = Callable[[int, int], None]
"""Takes the amount of work done, and the total."""
Progress = Callable[[str], AbstractContextManager[OnProgress]]
"""Shows the progress of work under a title."""


def no_progress(_title: str) -> AbstractContextManager[OnProgress]:
    """Show nothing."""
    return nullcontext(lambda _done, _of: None)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line for a target of any kind.

    `writer_gone` is the operator's confirmation that the job has ended although files changed
    recently.
    """

    sink: str | None = None
    consumer: str | None = None
    into: str | None = None
    writer_gone: bool = False
    read_only: bool = True
    progress: Progress = no_progress


@dataclass(frozen=True, slots=True)
class Change:
    """A plan of a target's journal, the function that applies it, and notes to show afterwards."""

    journal: Journal[Any]
    plan: Plan
    apply: Callable[[Approval], Entry]
    afterwards: tuple[str, ...] = ()

    @classmethod
    def of(cls, journal: Journal[Any], plan: Plan) -> Change:
        """The change that the journal itself applies."""
        return cls(journal, plan, lambda approval: journal.apply(plan, approval))


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a target's contents a check reads: all, a part, or for a limited time."""

    everything: bool = False
    subset: str | None = None
    max_duration: float | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether contents are read at all."""
        return self.everything or self.subset is not None or self.max_duration is not None


QUICK = Reading()
"""No contents, only names, sizes and logs."""


class Request(ABC):
    """A request of the operator for a target of any kind; the target's adapter implements it."""

    @abstractmethod
    def of(self, target: Target) -> Change:
        """The planned change of a target."""


@dataclass(frozen=True, slots=True)
class Rollback(Request):
    """Roll back to the end of a batch or snapshot, or to the last one at a time (`at`)."""

    to: int | None = None
    at: str | None = None
    force: bool = False
    unchecked: bool = False

    def of(self, target: Target) -> Change:
        if (self.to is None) is (self.at is None):
            raise UsageError("a rollback needs one of `to` and `at`")
        return target.rollback(self)


@dataclass(frozen=True, slots=True)
class Reset(Request):
    """Move positions; a gated stream must know what to do with events it already applied.

    `spec` describes the new positions, or makes such a description from the known topics.
    """

    spec: ResetSpec | Callable[[list[str]], ResetSpec]
    skip_seen: bool = False
    reprocess: bool = False
    force: bool = False
    unchecked: bool = False

    def of(self, target: Target) -> Change:
        return target.reset(self)

    def spec_of(self, topics: list[str]) -> ResetSpec:
        """The description of the new positions, for these topics."""
        return self.spec(topics) if callable(self.spec) else self.spec


@dataclass(frozen=True, slots=True)
class Repair(Request):
    """Fix the findings of verify; only the operator knows `offsets` and `query_id`.

    `choice`, of a stream, is what to do with output that the chain does not know.
    """

    read_data: bool = False
    offsets: Positions | None = None
    query_id: str | None = None
    force: bool = False
    choice: str | None = None

    def of(self, target: Target) -> Change:
        return target.repair(self)


@dataclass(frozen=True, slots=True)
class Status:
    """The last batch or epoch of a target and its time; for a store, its newest commit.

    `findings` has the problems that a quick check finds.
    """

    last_batch: int | None = None
    updated_ms: int | None = None
    summary: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Target(ABC):
    """A target of commands; `why` states how its kind was detected.

    A kind implements what it can do. Every other method raises an error that names a kind which
    can do it.
    """

    name: str
    uri: str
    why: str
    configured_name: str | None = None
    config: Config = field(default_factory=Config, repr=False)
    options: Options = field(default_factory=Options, repr=False)

    kind: ClassVar[TargetKind]
    accepts: ClassVar[frozenset[str]] = frozenset()
    """The options that apply to this kind, as on the command line."""
    maintenance_lock: ClassVar[str | None] = None
    """The lock that maintenance holds, below the target; None: nothing to maintain."""

    @classmethod
    @abstractmethod
    def detect(cls, found: Candidate) -> str | None:
        """The evidence that a place holds this kind; None if it does not."""

    @property
    def command_name(self) -> str:
        """The name of the target in the next command."""
        return self.configured_name or self.name

    def wrong_kind(self, wanted: TargetKind) -> UnsupportedFormat:
        """The error for a command that works on another kind."""
        return UnsupportedFormat(
            f"{self.uri} is {self.kind.shown} ({self.why}); this command needs {wanted.shown}",
            hint=f"name {wanted.shown}, or override the detection with --as",
            place=self.uri,
        )

    # Reading.

    def inspect(self, at: int | None = None) -> Report:
        """Its position and content, now or at a snapshot."""
        del at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def batches(self, last: int = 20) -> Report:
        """The newest batches or snapshots."""
        del last
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def compare(self, at: int | None, other: Target, other_at: int | None) -> Report:
        """The differences between two batches or snapshots."""
        del at, other, other_at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def verify(self, reading: Reading = QUICK) -> Report:
        """A check for damage."""
        del reading
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def audit(self, since_ms: int = 0, *, read_data: bool = False) -> Report:
        """A check whether data was lost or duplicated."""
        del since_ms, read_data
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def show_positions(self, at: int | None = None) -> Report:
        """The next offsets to read."""
        del at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def positions(self, at: int | None = None) -> tuple[Origin, Positions]:
        """The next offsets to read, and their origin (a batch, a snapshot, a consumer)."""
        del at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def lag(self, ends: Positions | None = None) -> list[Lag]:
        """How far each position is behind its end; without `ends`, they come from the source."""
        del ends
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def shards(self) -> Any:
        """The owners of its shards: an `OwnedShards`, of a package above this one."""
        raise self.wrong_kind(TargetKind.STREAM)

    # Operations.

    def status(self) -> Status:
        """Its position, and the findings of a quick check."""
        return Status()

    def metrics(self) -> Iterator[Sample]:
        """Its current metrics, without those that cannot be read."""
        return iter(())

    def verified_at(self) -> float | None:
        """The time when its contents were last read completely."""
        return None

    def maintain(self, options: RunOptions) -> Steps:
        """All steps of its maintenance."""
        del options
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    # Changing.

    def history(self) -> list[Entry]:
        """Its changes, newest first."""
        return self.journal().history()

    def plan(self, asked: Request | Operation) -> Plan:
        """The plan of a request, or of an operation of its kind, for its current state.

        Nothing is changed; `apply` makes the plan again and refuses it if the target has changed.
        """
        if isinstance(asked, Request):
            return asked.of(self).plan
        return self.journal().propose(asked)

    def apply(self, plan: Plan, *, reason: str | None = None) -> Entry:
        """Apply a plan, unless a running writer prevents it."""
        from sluicegate.journal import Approval
        from sluicegate.process import myself

        journal = self.journal()
        journal.preflight(plan)
        return journal.apply(plan, Approval(myself(), reason))

    def undo(
        self, operation: str | None = None, *, reason: str | None = None, force: bool = False
    ) -> Entry:
        """Revert a change, by its id in the history; without one, the newest."""
        return self.apply(self.journal().plan_undo(operation, force=force), reason=reason)

    def journal(self) -> Journal[Any]:
        """The record of its changes, which also applies new ones."""
        raise UnsupportedFormat(
            f"{self.uri} is {self.kind.shown} ({self.why}), for which this release keeps no "
            "journal",
            hint="name a stream, an offset store, a Spark checkpoint or an assignment file",
            place=self.uri,
        )

    def rollback(self, asked: Rollback) -> Change:
        """Roll back to the end of an older batch or snapshot."""
        del asked
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def reset(self, asked: Reset) -> Change:
        """Move positions."""
        del asked
        raise self.wrong_kind(TargetKind.OFFSET_STORE)

    def repair(self, asked: Repair) -> Change:
        """Repair the findings of verify, as far as no data is lost."""
        del asked
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)


Kind = TypeVar("Kind", bound=Target)


def expect(target: Target, kind: type[Kind]) -> Kind:
    """The target, which must be of the kind that a command needs."""
    if not isinstance(target, kind):
        raise target.wrong_kind(kind.kind)
    return target


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place whose kind is to be detected: a directory's entries, or one file.

    Names are checked first, then the first bytes of files, where the name is not enough.
    """

    storage: Storage
    entries: Mapping[str, str]
    file: str | None = None
    data: bytes = b""

    def frame_kind(self, name: str) -> str | None:
        """The kind of a file in our own format; None if it has another format."""
        from sluicegate import codec  # here, because most targets are detected by their names

        try:
            with self.storage.open(name) as stream:
                head = stream.read(codec.HEADER_BYTES)
            return codec.read_header(head, name).kind
        except SluicegateError:
            # One unreadable entry must not prevent the detection of the directory.
            return None


def detect(uri: str, likely: TargetKind | None = None) -> tuple[TargetKind, str]:
    """The kind of target at a URI, and the evidence; `UnsupportedFormat` if it is unknown.

    `likely` is the configured kind: its adapter is tried first.
    """
    candidate = _candidate(uri)
    kinds = [kind for kind in TargetKind if kind.is_file is (candidate.file is not None)]
    # Stores last: their package is the largest to import.
    kinds.sort(key=lambda kind: (kind is not likely, kind is TargetKind.OFFSET_STORE))
    for kind in kinds:
        if why := kind.adapter.detect(candidate):
            return kind, why
    for name, (what, hint) in _OTHERS.items():
        if candidate.entries.get(name) == "file":
            raise UnsupportedFormat(f"{uri} is {what}, not a target", hint=hint, place=uri)
    raise UnsupportedFormat(
        f"{uri} is not a Spark checkpoint, an offset store, a gated stream, a legacy checkpoint "
        "or an assignment file",
        hint="name the directory that holds offsets/ and commits/, or set the kind with --as",
        place=uri,
    )


def _candidate(uri: str) -> Candidate:
    if is_directory(uri):
        storage = open_storage(uri, read_only=True)
        return Candidate(storage, {entry.name: entry.kind for entry in storage.list()})
    # Resolved first: the operator named the file, so a symbolic link to it is followed.
    path = local_root(uri).resolve()
    beside = open_storage(str(path.parent), read_only=True)
    found = Candidate(beside, {}, path.name)
    if (kind := found.frame_kind(path.name)) is not None:
        raise UnsupportedFormat(
            f"{beside.uri}/{path.name} is a single Sluicegate file of kind {kind!r}, not a target",
            hint="name the directory it belongs to",
        )
    return Candidate(beside, {}, path.name, beside.get(path.name))


def is_directory(uri: str) -> bool:
    """Whether a URI is a directory or a file; `NotFound` if it does not exist."""
    path = local_root(uri)
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as e:
        raise NotFound(f"{path} does not exist", place=uri) from e
    except OSError as e:
        raise StorageFailed(f"{path}: {(e.strerror or str(e)).lower()}", place=uri) from e
