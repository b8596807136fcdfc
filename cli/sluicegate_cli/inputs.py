"""Parse the operator's options and files: topics, positions, scenarios, weights."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sluicegate.errors import NotFound, StorageFailed, UsageError
from sluicegate.positions import Positions, PositionsForm, parse
from sluicegate.reset import ResetSpec, Scenario, Scope
from sluicegate.storage import local_root
from sluicegate.units import parse_duration, parse_moment

if TYPE_CHECKING:
    from sluicegate.shards.owned import OwnedShards
    from sluicegate.shards.routing import Column

_MAX_BYTES = 64 * 1024 * 1024
_MAX_POSITIONS = 1_000_000
_TOPIC = re.compile(r"(?P<topic>.+?)(?::(?P<partitions>[0-9]{1,10}(?:,[0-9]{1,10})*))?", re.ASCII)
BY_DURATION = "by-duration"
SCENARIOS = (*(scenario.value for scenario in Scenario), BY_DURATION)


def scope_of(topics: list[str] | None, all_topics: bool, known: list[str]) -> Scope:
    """The scope of `--topic` and `--all-topics`; with several topics one of them is needed."""
    if topics and all_topics:
        raise UsageError("--topic and --all-topics exclude each other")
    if not topics and not all_topics and len(known) > 1:
        raise UsageError(
            f"there are several topics: {', '.join(known)}",
            hint="name some with --topic TOPIC[:0,1,2], or add --all-topics",
        )
    if not topics:
        return Scope()
    chosen: dict[str, frozenset[int] | None] = {}
    for word in topics:
        match = _TOPIC.fullmatch(word)
        if match is None:
            raise UsageError(f"--topic {word!r} is not TOPIC or TOPIC:0,1,2")
        text = match["partitions"]
        wanted = frozenset(map(int, text.split(","))) if text else None
        before = chosen.get(match["topic"], frozenset())
        chosen[match["topic"]] = None if wanted is None or before is None else wanted | before
    return Scope(chosen)


def read_positions(place: str, form: PositionsForm | None = None) -> Positions:
    """Positions from a file, or from standard input if the place is `-`."""
    text = read_text(place)
    try:
        found = parse(text, form)
    except UsageError as e:
        raise type(e)(f"{place}: {e.message}", hint=e.hint) from e
    if not len(found):
        raise UsageError(f"{place} has no positions", hint="check that it is the right file")
    if len(found) > _MAX_POSITIONS:
        raise UsageError(f"{place} has more than {_MAX_POSITIONS:,} positions")
    return found


def read_text(place: str) -> str:
    """The text of a file, or of standard input if the place is `-`."""
    data = _read(place)
    if len(data) > _MAX_BYTES:
        raise UsageError(
            f"{place} has more than {_MAX_BYTES} bytes", hint="check that it is the right file"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise UsageError(
            f"{place}, byte {e.start}: not UTF-8", hint="check that it is the right file"
        ) from e


def _read(place: str) -> bytes:
    """The content, up to the limit and one byte more; also from a pipe such as `<(…)`."""
    if place == "-":
        return sys.stdin.buffer.read(_MAX_BYTES + 1)
    try:
        with local_root(place).open("rb") as stream:
            return stream.read(_MAX_BYTES + 1)
    except FileNotFoundError as e:
        raise NotFound(f"{place} does not exist", hint="check the path", place=place) from e
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise StorageFailed(f"{place}: {reason}", hint="name a file", place=place) from e


def reset_spec(given: Mapping[str, Any], scope: Scope, *, clamp: bool) -> ResetSpec:
    """The one scenario among the options, by their names; none or several is an error."""
    # Not by truth: --to-offset 0 is a choice, too.
    chosen = [
        name for name in SCENARIOS if given.get(name) is not None and given[name] is not False
    ]
    if len(chosen) != 1:
        got = " and ".join(f"--{name}" for name in chosen) or "none"
        raise UsageError(
            f"exactly one scenario is needed, got {got}",
            hint="choose one of " + ", ".join(f"--{name}" for name in SCENARIOS),
        )
    name, value = chosen[0], given[chosen[0]]
    if name == BY_DURATION:
        back = round((time.time() - parse_duration(value)) * 1000)
        return ResetSpec(Scenario.MOMENT, scope, moment_ms=back, clamp=clamp)
    scenario = Scenario(name)
    match scenario:
        case Scenario.OFFSET | Scenario.SHIFT:
            return ResetSpec(scenario, scope, number=value, clamp=clamp)
        case Scenario.MOMENT:
            return ResetSpec(scenario, scope, moment_ms=parse_moment(value), clamp=clamp)
        case Scenario.FILE:
            positions = read_positions(value)
            if not any(scope.has(each.topic, each.partition) for each in positions):
                raise UsageError(f"{value} has no position of the topics in --topic")
            return ResetSpec(scenario, scope, positions=positions, clamp=clamp)
    return ResetSpec(scenario, scope, clamp=clamp)


def shard_weights(shards: OwnedShards, option: str | None) -> tuple[Column | None, str | None]:
    """The weights of the shards by an option, and the name of the measure."""
    from sluicegate.shards.describe import OWN
    from sluicegate.shards.weights import parse

    if option is None:
        return None, None
    if option in shards.measures:
        return shards.weights(option), option
    return parse(read_text(option), shards.assignment.n_shards), OWN


def parse_part(text: str | None, option: str) -> float | None:
    """A fraction, written `5%` or `0.05`."""
    if text is None:
        return None
    number = text.strip().removesuffix("%")
    try:
        part = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        part = -1.0
    if not 0 <= part < (100 if "%" in text else 1):
        raise UsageError(f"{option} {text!r} is not a fraction", hint=f"write {option} 5% or 0.05")
    return part


def parse_capacities(words: list[str] | None) -> dict[str, int]:
    """Capacities of nodes, written `NODE=N`."""
    found = {}
    for word in words or ():
        name, equals, size = word.rpartition("=")
        if not equals or not size.isdecimal() or name in found:
            raise UsageError(f"--capacity {word!r} is not NODE=N", hint="write --capacity node-1=2")
        found[name] = int(size)
    return found
