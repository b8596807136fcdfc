"""The contract of every kind of target; each kind has a subclass that tests it.

class TestMine(TargetContract):
    kind = TargetKind.MINE

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        …
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import SluicegateError, UnsupportedFormat
from sluicegate.maintenance import Sample
from sluicegate.report import Report
from sluicegate.resolve import open_target
from sluicegate.target import Rollback, Status, Target, TargetKind, detect

LOOKS: dict[str, Callable[[Target], Any]] = {
    "inspect": lambda target: target.inspect(),
    "batches": lambda target: target.batches(),
    "verify": lambda target: target.verify(),
    "audit": lambda target: target.audit(),
    "show_positions": lambda target: target.show_positions(),
    "positions": lambda target: target.positions(),
    "compare": lambda target: target.compare(None, target, None),
    "status": lambda target: target.status(),
    "metrics": lambda target: list(target.metrics()),
    "verified_at": lambda target: target.verified_at(),
    "history": lambda target: target.history(),
}


class TargetContract:
    """Of a healthy target at the path that the fixture `place` gives."""

    kind: TargetKind

    @pytest.fixture
    def place(self) -> Path:
        raise NotImplementedError

    @pytest.fixture
    def target(self, place: Path) -> Target:
        return open_target(str(place))

    def test_it_is_recognised(self, place: Path) -> None:
        kind, why = detect(str(place))
        assert kind is self.kind
        assert why.startswith("it ")
        # What the configuration calls it must not decide what it is.
        assert {detect(str(place), likely)[0] for likely in TargetKind} == {kind}

    def test_no_other_kind_recognises_it_first(self, place: Path) -> None:
        others = [kind for kind in TargetKind if kind is not self.kind]
        assert all(detect(str(place), likely) == detect(str(place)) for likely in others)

    @pytest.mark.parametrize("look", LOOKS)
    def test_looking_changes_nothing(self, place: Path, target: Target, look: str) -> None:
        before = _files(place)
        _tried(lambda: LOOKS[look](target))
        assert _files(place) == before

    @pytest.mark.parametrize("look", LOOKS)
    def test_a_look_gives_what_it_should_or_says_who_can(self, target: Target, look: str) -> None:
        found = _tried(lambda: LOOKS[look](target))
        match found:
            case Report():
                assert found.schema.startswith("sluicegate.")
                json.dumps(found.document)
            case Status():
                assert found.findings == ()
            case UnsupportedFormat():
                # Of another kind, or this one has nothing of the sort.
                assert target.uri in found.message
                assert found.hint
            case [Sample(), *_]:
                assert all(sample.metric for sample in found)
            case _:
                assert look in ("positions", "verified_at", "history", "metrics")

    def test_a_healthy_one_has_no_findings(self, target: Target) -> None:
        found = _tried(target.verify)
        assert isinstance(found, UnsupportedFormat) or not found.findings

    def test_a_rollback_is_planned_or_refused(self, place: Path, target: Target) -> None:
        before = _files(place)
        found = _tried(lambda: target.plan(Rollback(to=10**9)))
        assert isinstance(found, SluicegateError)
        assert _files(place) == before

    def test_it_knows_its_options_only(self, target: Target) -> None:
        assert all(option.startswith("--") for option in target.accepts)

    def test_it_is_maintained_under_a_lock_or_not_at_all(self, target: Target) -> None:
        maintained = type(target).maintain is not Target.maintain
        assert maintained is (target.maintenance_lock is not None)


def _tried(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except SluicegateError as e:
        return e


def _files(place: Path) -> dict[Path, tuple[bytes, int]]:
    """Contents and times; locks are not content."""
    found = [place] if place.is_file() else [each for each in place.rglob("*") if each.is_file()]
    return {each: (each.read_bytes(), each.stat().st_mtime_ns) for each in found}
