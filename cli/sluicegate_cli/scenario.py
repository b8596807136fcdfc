"""The options of `offsets reset`, which of them was given, and what it means."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sluicegate.errors import UsageError
from sluicegate.reset import ResetSpec, Scenario, Scope
from sluicegate.units import parse_duration, parse_moment
from sluicegate_cli.stores import read_positions

BY_DURATION = "by-duration"
OPTIONS = (*(scenario.value for scenario in Scenario), BY_DURATION)


def reset_spec(given: Mapping[str, Any], scope: Scope, *, clamp: bool) -> ResetSpec:
    """The one scenario among the options, by their names; none or several is a mistake."""
    # Not by truth: --to-offset 0 is given, too.
    chosen = [name for name in OPTIONS if given.get(name) is not None and given[name] is not False]
    if len(chosen) != 1:
        said = "none was" if not chosen else " and ".join(f"--{name}" for name in chosen) + " were"
        raise UsageError(
            f"exactly one scenario is needed, {said} given",
            hint="choose one of " + ", ".join(f"--{name}" for name in OPTIONS),
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
                raise UsageError(f"{value} has no position of what --topic names")
            return ResetSpec(scenario, scope, positions=positions, clamp=clamp)
    return ResetSpec(scenario, scope, clamp=clamp)
