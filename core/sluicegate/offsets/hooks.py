"""Commit hooks: functions that are called after a commit and cannot affect it.

Hooks run after the commit is durable and its lock is free, so the hooks of two commits may overlap;
the sequence shows their order. A hook that fails neither undoes the commit nor prevents the other
hooks: its failure is reported with the successful commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sluicegate import units
from sluicegate.journal import append_line
from sluicegate.offsets.record import Record
from sluicegate.offsets.store import Commit, Decide, HookFailure, OffsetStore, Partition
from sluicegate.positions import Positions, to_spark
from sluicegate.process import Who

if TYPE_CHECKING:
    import logging

_INFO = 20


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """One commit: the positions it set and removed, and their previous values."""

    consumer: str
    sequence: int
    kind: str
    at: float
    by: Who
    put: Positions
    removed: frozenset[Partition]
    previous: Mapping[Partition, int | None]
    reason: str | None = None

    def fields(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "consumer": self.consumer,
            "sequence": self.sequence,
            "kind": self.kind,
            "at": units.utc(self.at),
            "by": self.by.fields(),
            "put": to_spark(self.put),
            "removed": [list(each) for each in sorted(self.removed)],
            "previous": [[*each, offset] for each, offset in sorted(self.previous.items())],
            "reason": self.reason,
        }


class CommitHook(Protocol):
    """A function that is called after commits. It should be fast."""

    def __call__(self, info: CommitInfo, /) -> None:
        """Called once a commit is durable."""


class HookedOffsetStore(OffsetStore):
    """Another store, with hooks."""

    def __init__(self, inner: OffsetStore, hooks: Iterable[CommitHook]) -> None:
        self._inner = inner
        self._hooks = tuple(hooks)

    def load(self, consumer: str) -> Record | None:
        return self._inner.load(consumer)

    def list(self) -> list[str]:
        return self._inner.list()

    def update(self, consumer: str, decide: Decide) -> Commit:
        commit = self._inner.update(consumer, decide)
        return replace(commit, hook_failures=commit.hook_failures + run_hooks(self._hooks, commit))


def run_hooks(hooks: Iterable[CommitHook], commit: Commit) -> tuple[HookFailure, ...]:
    """Call every hook with a commit; returns those that failed."""
    if commit.record is None or commit.record is commit.previous:
        return ()
    info = _info(commit.record, commit)
    failures = []
    stop: BaseException | None = None
    for hook in hooks:
        try:
            hook(info)
        except Exception as e:  # noqa: BLE001 - a failed hook does not affect the commit
            failures.append(HookFailure(_name(hook), _described(e)))
        except BaseException as e:  # noqa: BLE001 - Ctrl-C waits until all hooks were called
            stop = stop or e
    if stop is not None:
        raise stop
    return tuple(failures)


class LoggingHook:
    """Writes a line to Python's logging for every commit."""

    def __init__(self, logger: logging.Logger | None = None, level: int = _INFO) -> None:
        # Imported here: only this hook needs it, and it costs start-up time.
        import logging

        self._logger = logger or logging.getLogger("sluicegate.offsets")
        self._level = level

    def __call__(self, info: CommitInfo) -> None:
        self._logger.log(
            self._level,
            "%s of consumer %s, sequence %d: %s",
            info.kind,
            info.consumer,
            info.sequence,
            json.dumps(to_spark(info.put)),
        )


class JsonLinesHook:
    """Appends one line of JSON per commit to a file, durably: an audit log."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, info: CommitInfo) -> None:
        append_line(self._path, info.fields())


class CollectingHook:
    """Collects the commits, for tests."""

    def __init__(self) -> None:
        self.commits: list[CommitInfo] = []

    def __call__(self, info: CommitInfo) -> None:
        self.commits.append(info)


def _info(record: Record, commit: Commit) -> CommitInfo:
    update, before = commit.update, commit.previous
    touched = {(p.topic, p.partition) for p in update.put} | update.remove
    return CommitInfo(
        consumer=record.consumer,
        sequence=record.sequence,
        kind=record.kind,
        at=record.at,
        by=record.by,
        put=update.put,
        removed=update.remove,
        previous={each: before.positions.get(*each) if before else None for each in touched},
        reason=record.change.reason if record.change else None,
    )


def _described(error: Exception) -> str:
    # Not str(): that may fail for a hook's error, too.
    from traceback import format_exception_only

    return format_exception_only(error)[-1].strip()


def _name(hook: CommitHook) -> str:
    return getattr(hook, "__qualname__", type(hook).__qualname__)
