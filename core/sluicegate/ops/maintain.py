"""One run over many targets: those that were verified longest ago first, each under its lock."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from sluicegate.config import Config
from sluicegate.detection import TargetKind
from sluicegate.errors import Locked, SluicegateError, UsageError
from sluicegate.findings import Severity, worst_first
from sluicegate.ops import maintenance, metrics
from sluicegate.ops.maintenance import Outcome, Report, Sample, Step, Steps, TargetReport, Terms
from sluicegate.storage import canonical_uri, open_storage
from sluicegate.stream.home import check_home
from sluicegate.target import Sighting, Target, resolve, survey

_LOCKS = {
    TargetKind.STREAM: "locks/maintain.lock",
    TargetKind.SPARK_CHECKPOINT: "_sluicegate/maintain.lock",
    # No consumer can have this name.
    TargetKind.OFFSET_STORE: ".maintain.lock",
}


def choose(config: Config, home: str, words: Sequence[str], *, everything: bool) -> list[Sighting]:
    """What a run is about: the named targets and paths, or all that are known.

    A name that is not known is refused; a known target that is not there is a finding.
    """
    known = {sighting.name: sighting for sighting in survey(config, home)}
    if words and everything:
        raise UsageError("--all and names exclude each other", hint="leave one of them out")
    if words:
        return [known.get(word) or _sighted(word, config, home) for word in dict.fromkeys(words)]
    if everything:
        # A home whose disk is not mounted has no streams that could be missed.
        wrong = [each for each in check_home(home) if each.severity is Severity.ERROR]
        return [*([Sighting("home", home, None, tuple(wrong))] if wrong else []), *known.values()]
    if len(known) == 1:
        return list(known.values())
    if not known:
        raise UsageError(
            "no target was given, and sluicegate.toml names none",
            hint="give a path, or name your targets in sluicegate.toml",
        )
    raise UsageError(
        f"no target was given, and there are several: {', '.join(known)}",
        hint="name some of them, or say --all",
    )


def maintain(
    config: Config, sightings: Iterable[Sighting], terms: Terms, *, measure: bool
) -> Report:
    """Maintain targets, one after the other; with `measure`, also gather what metrics tell."""
    started, began = time.time(), time.monotonic()
    order = sorted(sightings, key=lambda each: (_verified_at(each.target) or 0.0, each.name))
    targets = [_maintain(config, each, terms, measure=measure) for each in order]
    return Report(tuple(targets), started, time.monotonic() - began)


def _maintain(config: Config, sighting: Sighting, terms: Terms, *, measure: bool) -> TargetReport:
    target = sighting.target
    kind = target.kind.value if target else None
    report = TargetReport(sighting.name, sighting.uri, kind, findings=sighting.findings)
    if target is None or target.kind not in _LOCKS:
        return report
    began = time.monotonic()
    try:
        with _alone(target, terms):
            steps = _care(config, target, terms)
    except _AtWork as e:
        # Quietly: whoever holds it does the same.
        report = replace(report, steps=(Step("maintain", Outcome.SKIPPED, e.message),))
    except (SluicegateError, OSError) as e:
        finding = maintenance.FAILED.at(target.uri, str(e))
        report = replace(report, findings=(*report.findings, finding))
    else:
        found = tuple(worst_first([*report.findings, *steps.findings]))
        report = replace(report, steps=tuple(steps.done), findings=found)
    samples = tuple(_measured(target)) if measure else ()
    return replace(report, samples=samples, seconds=time.monotonic() - began)


class _AtWork(Locked):
    """Another run maintains the target."""


@contextmanager
def _alone(target: Target, terms: Terms) -> Iterator[None]:
    """Hold the target's lock, without waiting for it; who only looks needs none."""
    with ExitStack() as stack:
        if not terms.only_looks:
            lock = open_storage(target.uri).lock(_LOCKS[target.kind])
            try:
                stack.enter_context(lock.hold(timeout=0))
            except Locked as e:
                raise _AtWork(f"another run is at work: {e.message}") from e
        yield


def _care(config: Config, target: Target, terms: Terms) -> Steps:
    # Each kind imported when it is met: most installations have one or two.
    uri, name = canonical_uri(target.uri), target.configured_name
    if target.kind is TargetKind.STREAM:
        from sluicegate.ops.maintain_streams import StreamCare
        from sluicegate.stream.stream import open_stream

        stream = open_stream(uri, read_only=terms.only_looks, patience=0.0)
        return StreamCare(stream, config.streams.get(name or ""), terms).run()
    storage = open_storage(uri, read_only=terms.only_looks)
    if target.kind is TargetKind.OFFSET_STORE:
        from sluicegate.ops.maintain_stores import StoreCare

        return StoreCare(storage, terms, name).run()
    from sluicegate.ops.maintain_checkpoints import CheckpointCare

    named = config.targets.get(name or "")
    sink = open_storage(named.sink, read_only=True) if named and named.sink else None
    return CheckpointCare(storage, sink, terms, name).run()


def _measured(target: Target) -> Iterator[Sample]:
    try:
        yield from metrics.of(target)
    except (SluicegateError, OSError):
        # What cannot be read is a finding already, and has no value.
        return


def _sighted(word: str, config: Config, home: str) -> Sighting:
    target = resolve(word, config, home)
    return Sighting(word, target.uri, target, ())


def _verified_at(target: Target | None) -> float | None:
    """When the contents of a target were last read to their end; None if that cannot be told."""
    if target is None:
        return None
    with suppress(SluicegateError):
        return _complete(target)
    return None


def _complete(target: Target) -> float | None:
    if target.kind is TargetKind.SPARK_CHECKPOINT:
        return maintenance.load(open_storage(target.uri, read_only=True)).complete
    if target.kind is TargetKind.STREAM:
        from sluicegate.stream.stream import open_stream
        from sluicegate.stream.verify import last_complete

        return last_complete(open_stream(target.uri, read_only=True))
    return None
