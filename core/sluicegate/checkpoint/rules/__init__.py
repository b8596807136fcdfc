"""What can be wrong with a Spark checkpoint: one module per area.

A module holds the rules of its area (code, severity, title, explanation, log patterns), `check`,
which reports them, and their fixes. To add a finding, add it there: nothing else lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from sluicegate.findings import Finding, register_later

if TYPE_CHECKING:
    from sluicegate.checkpoint.rules.fixes import Case


def _always(_case: Case) -> bool:
    return True


def _never(_case: Case) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Area:
    """A module with rules, and whether a checkpoint has what it checks.

    What a checkpoint does not have need not be imported: `status` verifies every target.
    """

    name: str
    applies: Callable[[Case], bool] = _always

    @property
    def module_name(self) -> str:
        return f"{__name__}.{self.name}"

    def load(self) -> ModuleType:
        """The module."""
        return import_module(self.module_name)


# Of several log patterns that fit one line, the first is taken: this order counts.
AREAS = (
    Area("layout"),
    Area("metadata"),
    Area("sink_log", lambda case: case.sink is not None),
    Area("source_log"),
    Area("commits"),
    Area("offsets"),
    # Reads all state, so it is not part of the check that is done twice.
    Area("state_data", _never),
    Area("state", lambda case: case.has_state),
)
register_later(area.module_name for area in AREAS)


def check(case: Case) -> Iterator[Finding]:
    """Every finding that needs no reading of all data, area by area."""
    for area in AREAS:
        if area.applies(case):
            yield from area.load().check(case)
