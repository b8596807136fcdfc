"""What an operator points at: a named target or a path, of which kind, and what it can do.

Every kind is one adapter, a subclass of `Target` in its own package; here they are known by the
names of their modules only. Commands ask the target and never test its kind.
"""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

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


class TargetKind(Enum):
    """What commands can work on, the module of each kind's adapter, and whether it is one file."""

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
        """With its article, as it stands in a sentence."""
        return f"{'an' if self.value[0] in 'ao' else 'a'} {self.value}"

    @property
    def adapter(self) -> type[Target]:
        """The class that does everything that depends on the kind."""
        found: type[Target] = import_module(self._module).ADAPTER
        return found


CHAIN = "chain"
"""The directory that makes a stream's directory one."""
# Directories of ours that commands do not work on, by their identity files.
_OTHERS = {
    "sluicegate.log": (
        "an embedded log, the source of streams",
        "name a stream that reads it, or name it as a stream's source in sluicegate.toml",
    ),
    "sluicegate.producer": (
        "the directory of a producer",
        "its application opens it; commands work on streams and stores",
    ),
}

OnProgress = Callable[[int, int], None]
"""Takes how much of a piece of work is done, and of how much."""
Progress = Callable[[str], AbstractContextManager[OnProgress]]
"""Shows work under a title while it goes on."""


def no_progress(_title: str) -> AbstractContextManager[OnProgress]:
    """Show nothing."""
    return nullcontext(lambda _done, _of: None)


@dataclass(frozen=True, slots=True)
class Options:
    """How one run works on a target, whatever its kind: what was said on the command line.

    `writer_gone` is the operator's word that the job has ended, where files are too young to tell.
    """

    sink: str | None = None
    consumer: str | None = None
    into: str | None = None
    writer_gone: bool = False
    read_only: bool = True
    progress: Progress = no_progress


@dataclass(frozen=True, slots=True)
class Change:
    """A plan of a target's journal, what carries it out, and what to tell afterwards."""

    journal: Journal[Any]
    plan: Plan
    apply: Callable[[Approval], Entry]
    afterwards: tuple[str, ...] = ()

    @classmethod
    def of(cls, journal: Journal[Any], plan: Plan) -> Change:
        """As the journal itself applies it."""
        return cls(journal, plan, lambda approval: journal.apply(plan, approval))


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a target's contents a check reads: all, a part of it, for so long."""

    everything: bool = False
    subset: str | None = None
    max_duration: float | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether contents are read at all."""
        return self.everything or self.subset is not None or self.max_duration is not None


QUICK = Reading()
"""No contents: names, sizes and logs only."""


class Request(ABC):
    """What an operator asks for, whatever the kind of the target; its adapter knows how."""

    @abstractmethod
    def of(self, target: Target) -> Change:
        """As a change of a target, planned."""


@dataclass(frozen=True, slots=True)
class Rollback(Request):
    """Go back to the end of a batch or snapshot, or to the last there was at a time (`at`)."""

    to: int | None = None
    at: str | None = None
    force: bool = False

    def of(self, target: Target) -> Change:
        if (self.to is None) is (self.at is None):
            raise UsageError("a rollback needs one of `to` and `at`")
        return target.rollback(self)


@dataclass(frozen=True, slots=True)
class Reset(Request):
    """Move positions; a gated stream must know what becomes of what it counted already.

    `spec` says where to, or is made from the topics that there are.
    """

    spec: ResetSpec | Callable[[list[str]], ResetSpec]
    skip_seen: bool = False
    reprocess: bool = False
    force: bool = False

    def of(self, target: Target) -> Change:
        return target.reset(self)

    def spec_of(self, topics: list[str]) -> ResetSpec:
        """Where to, given the topics."""
        return self.spec(topics) if callable(self.spec) else self.spec


@dataclass(frozen=True, slots=True)
class Repair(Request):
    """Fix what verify finds; `offsets` and `query_id` are what only the operator knows."""

    read_data: bool = False
    offsets: Positions | None = None
    query_id: str | None = None
    force: bool = False

    def of(self, target: Target) -> Change:
        return target.repair(self)


@dataclass(frozen=True, slots=True)
class Status:
    """Where a target is: its last batch or epoch and when that was; of a store, its newest commit.

    `findings` has what a quick look finds wrong.
    """

    last_batch: int | None = None
    updated_ms: int | None = None
    standing: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Target(ABC):
    """Something to work on; `why` says in a few words how its kind is known.

    A kind implements what it can do. The rest says of itself which kind can do it.
    """

    name: str
    uri: str
    why: str
    configured_name: str | None = None
    config: Config = field(default_factory=Config, repr=False)
    options: Options = field(default_factory=Options, repr=False)

    kind: ClassVar[TargetKind]
    accepts: ClassVar[frozenset[str]] = frozenset()
    """The options that mean something for this kind, as they are written."""
    maintenance_lock: ClassVar[str | None] = None
    """The lock that maintenance holds, below the target; None: nothing to maintain."""

    @classmethod
    @abstractmethod
    def detect(cls, found: Candidate) -> str | None:
        """How it shows that this kind lies at a place; None if it does not."""

    @property
    def command_name(self) -> str:
        """The target as the next command names it."""
        return self.configured_name or self.name

    def wrong_kind(self, wanted: TargetKind) -> UnsupportedFormat:
        """The one error for a command that works on another kind."""
        return UnsupportedFormat(
            f"{self.uri} is {self.kind.shown} ({self.why}); this works on {wanted.shown}",
            hint=f"name {wanted.shown}, or override the detection with --as",
            place=self.uri,
        )

    # Looking.

    def inspect(self, at: int | None = None) -> Report:
        """Where it stands, now or at a snapshot."""
        del at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def batches(self, last: int = 20) -> Report:
        """The newest batches or snapshots."""
        del last
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def compare(self, at: int | None, other: Target, other_at: int | None) -> Report:
        """What differs between two batches or snapshots."""
        del at, other, other_at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def verify(self, reading: Reading = QUICK) -> Report:
        """What is wrong with it."""
        del reading
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def audit(self, since_ms: int = 0, *, read_data: bool = False) -> Report:
        """What shows whether anything was lost or duplicated."""
        del since_ms, read_data
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def show_positions(self, at: int | None = None) -> Report:
        """The next offsets to read."""
        del at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def positions(self, at: int | None = None) -> tuple[Mapping[str, Any], Positions]:
        """The next offsets to read, and where they come from (a batch, a snapshot, a consumer)."""
        del at
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def lag(self, ends: Positions | None = None) -> list[Lag]:
        """How far each position is behind its end; without `ends` the source is asked."""
        del ends
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def shards(self) -> Any:
        """Who owns its shards: an `OwnedShards`, of a package above this one."""
        raise self.wrong_kind(TargetKind.STREAM)

    # Day by day.

    def status(self) -> Status:
        """Where it is, and what a quick look finds wrong."""
        return Status()

    def metrics(self) -> Iterator[Sample]:
        """What is measured of it now; a part that cannot be read is left out."""
        return iter(())

    def verified_at(self) -> float | None:
        """When its contents were last read to their end."""
        return None

    def maintain(self, options: RunOptions) -> Steps:
        """All steps of its maintenance."""
        del options
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    # Changing.

    def history(self) -> list[Entry]:
        """What was changed, newest first."""
        return self.journal().history()

    def plan(self, asked: Request | Operation) -> Plan:
        """What something means for the target as it is now: a request, or an operation of its kind.

        Nothing is changed; `apply` makes the plan again and refuses it if the target has changed.
        """
        if isinstance(asked, Request):
            return asked.of(self).plan
        return self.journal().propose(asked)

    def apply(self, plan: Plan, *, reason: str | None = None) -> Entry:
        """Carry a plan out, unless a living writer stands against it."""
        from sluicegate.journal import Approval
        from sluicegate.process import myself

        journal = self.journal()
        journal.preflight(plan)
        return journal.apply(plan, Approval(myself(), reason))

    def undo(
        self, operation: str | None = None, *, reason: str | None = None, force: bool = False
    ) -> Entry:
        """Take a change back, by its id in the history; without one, the newest."""
        return self.apply(self.journal().plan_undo(operation, force=force), reason=reason)

    def journal(self) -> Journal[Any]:
        """What was changed, and how more is changed."""
        raise UnsupportedFormat(
            f"{self.uri} is a {self.kind.value} ({self.why}), of which this release keeps no "
            "journal",
            hint="name a stream, an offset store, a Spark checkpoint or an assignment file",
            place=self.uri,
        )

    def rollback(self, asked: Rollback) -> Change:
        """To the end of an older batch or snapshot."""
        del asked
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)

    def reset(self, asked: Reset) -> Change:
        """Positions elsewhere."""
        del asked
        raise self.wrong_kind(TargetKind.OFFSET_STORE)

    def repair(self, asked: Repair) -> Change:
        """What verify finds, as far as that loses nothing."""
        del asked
        raise self.wrong_kind(TargetKind.SPARK_CHECKPOINT)


Kind = TypeVar("Kind", bound=Target)


def expect(target: Target, kind: type[Kind]) -> Kind:
    """The target, which must be of a kind that only one command knows."""
    if not isinstance(target, kind):
        raise target.wrong_kind(kind.kind)
    return target


@dataclass(frozen=True, slots=True)
class Candidate:
    """What lies at a place whose kind is to be found: a directory's entries, or one file.

    Names decide first, then the first bytes of files; never a file's name alone what only its
    content can tell.
    """

    storage: Storage
    entries: Mapping[str, str]
    file: str | None = None
    data: bytes = b""

    def frame_kind(self, name: str) -> str | None:
        """The kind of a file in our own format; None if it is none."""
        from sluicegate import codec  # here, because most targets are known by their names

        try:
            with self.storage.open(name) as stream:
                head = stream.read(codec.HEADER_BYTES)
            return codec.read_header(head, name).kind
        except SluicegateError:
            # One odd entry must not hide what the rest of the directory is.
            return None


def detect(uri: str, likely: TargetKind | None = None) -> tuple[TargetKind, str]:
    """What lies at a URI, and how that shows; `UnsupportedFormat` if it is nothing we know.

    `likely` is what the configuration calls it: its adapter is asked first.
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
        f"{uri} is not a Spark checkpoint, an offset store, a gated stream, a v1 checkpoint or "
        "an assignment file",
        hint="name the directory that holds offsets/ and commits/, or say what it is with --as",
        place=uri,
    )


def _candidate(uri: str) -> Candidate:
    if is_directory(uri):
        storage = open_storage(uri, read_only=True)
        return Candidate(storage, {entry.name: entry.kind for entry in storage.list()})
    # Resolved first: the operator named the file, so a snapshot to it is meant to be followed.
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
    """Whether a directory is there, or a file; `NotFound` if neither."""
    path = local_root(uri)
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except FileNotFoundError as e:
        raise NotFound(f"{path} does not exist", place=uri) from e
    except OSError as e:
        raise StorageFailed(f"{path}: {(e.strerror or str(e)).lower()}", place=uri) from e
