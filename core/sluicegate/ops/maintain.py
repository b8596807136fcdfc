"""One run over many targets: oldest verification first, each under its lock."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from sluicegate import maintenance
from sluicegate.config import Config
from sluicegate.errors import Locked, SluicegateError, UsageError
from sluicegate.findings import Severity, worst_first
from sluicegate.maintenance import Outcome, RunOptions, RunReport, Sample, Step, TargetReport
from sluicegate.resolve import TargetEntry, list_targets, resolve
from sluicegate.storage import open_storage
from sluicegate.stream.home import check_home
from sluicegate.target import Target


def choose(
    config: Config, home: str, words: Sequence[str], *, everything: bool
) -> list[TargetEntry]:
    """The targets of a run: the named targets and paths, or all known ones.

    An unknown name is refused; a known target that does not exist is a finding.
    """
    known = {entry.name: entry for entry in list_targets(config, home)}
    if words and everything:
        raise UsageError("--all and names exclude each other", hint="use one of them")
    if words:
        return [known.get(word) or _entry_of(word, config, home) for word in dict.fromkeys(words)]
    if everything:
        # A home whose disk is not mounted lists no streams, so the home itself is checked.
        wrong = [each for each in check_home(home) if each.severity is Severity.ERROR]
        return [
            *([TargetEntry("home", home, None, tuple(wrong))] if wrong else []),
            *known.values(),
        ]
    if len(known) == 1:
        return list(known.values())
    if not known:
        raise UsageError(
            "the target is missing, and sluicegate.toml has none",
            hint="name a path, or add targets to sluicegate.toml",
        )
    raise UsageError(
        f"the target is missing, and there are several: {', '.join(known)}",
        hint="name some of them, or use --all",
    )


def maintain(entries: Iterable[TargetEntry], options: RunOptions, *, measure: bool) -> RunReport:
    """Maintain targets, one after the other; with `measure`, also collect metrics."""
    started, began = time.time(), time.monotonic()
    order = sorted(entries, key=lambda each: (_verified_at(each.target) or 0.0, each.name))
    targets = [_maintain(each, options, measure=measure) for each in order]
    return RunReport(tuple(targets), started, time.monotonic() - began)


def _maintain(entry: TargetEntry, options: RunOptions, *, measure: bool) -> TargetReport:
    target = entry.target
    kind = target.kind.value if target else None
    report = TargetReport(entry.name, entry.uri, kind, findings=entry.findings)
    if target is None or target.maintenance_lock is None:
        return report
    began = time.monotonic()
    try:
        with _alone(target, options):
            steps = target.maintain(options)
    except _AnotherRun as e:
        # No finding: the other run does the same.
        report = replace(report, steps=(Step("maintain", Outcome.SKIPPED, e.message),))
    except (SluicegateError, OSError) as e:
        finding = maintenance.FAILED.at(target.uri, str(e))
        report = replace(report, findings=(*report.findings, finding))
    else:
        found = tuple(worst_first([*report.findings, *steps.findings]))
        report = replace(report, steps=tuple(steps.done), findings=found)
    samples = tuple(_measured(target)) if measure else ()
    return replace(report, samples=samples, seconds=time.monotonic() - began)


class _AnotherRun(Locked):
    """Another run maintains the target."""


@contextmanager
def _alone(target: Target, options: RunOptions) -> Iterator[None]:
    """Hold the target's lock, without waiting for it; a run that only reads needs none."""
    with ExitStack() as stack:
        if not options.only_looks:
            lock = open_storage(target.uri).lock(target.maintenance_lock or "")
            try:
                stack.enter_context(lock.hold(timeout=0))
            except Locked as e:
                raise _AnotherRun(f"another run is active: {e.message}") from e
        yield


def _measured(target: Target) -> Iterator[Sample]:
    try:
        yield from target.metrics()
    except (SluicegateError, OSError):
        # An unreadable target is already a finding, and has no metrics.
        return


def _entry_of(word: str, config: Config, home: str) -> TargetEntry:
    target = resolve(word, config, home)
    return TargetEntry(word, target.uri, target, ())


def _verified_at(target: Target | None) -> float | None:
    """The time when the contents of a target were last read completely; None if unknown."""
    with suppress(SluicegateError):
        return target.verified_at() if target else None
    return None
