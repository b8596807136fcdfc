"""Plans as files: JSON that is readable in a pull request, with a digest against edits.

The digest covers every value in the file but itself, not their layout. It protects an approved
plan from later edits. When the plan is applied, the same work is planned again, to check that the
texts match the work.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sluicegate import __version__, units
from sluicegate.errors import (
    Corrupt,
    Drifted,
    NotConfirmed,
    NotFound,
    SluicegateError,
    StorageFailed,
    UnsupportedFormat,
    UsageError,
)
from sluicegate.plan import Action, Choice, Plan, Precondition, Subject
from sluicegate.process import myself
from sluicegate.storage import LocalStorage, local_root, open_beside
from sluicegate.units import parse_moment

SCHEMA = "sluicegate.saved-plan"
VERSION = 1
DEFAULT_LIFETIME = 24 * 3600.0
MAX_LIFETIME = 366 * 24 * 3600.0
_MAX_BYTES = 64 * 1024 * 1024
_MIN_DIGEST = 16


class PlanExpired(Drifted):
    """A saved plan has expired."""


class PlanNotExpected(NotConfirmed):
    """A saved plan is not the one that was approved."""

    default_hint = "compare the digest with the one that was approved; nothing was changed"


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan with its author, reason and expiry; `place` is the file it was read from."""

    plan: Plan
    by: str
    made_at: str
    expires: str
    reason: str | None
    release: str
    digest: str
    place: str

    def expect(self, digest: str) -> None:
        """Refuse a plan that is not the one with this digest."""
        wanted = digest.strip().lower()
        if len(wanted) < _MIN_DIGEST or not self.digest.startswith(wanted):
            raise PlanNotExpected(
                f"{self.place} has the digest {self.digest}, not {digest}", place=self.place
            )

    def check_expiry(self, now: float | None = None) -> None:
        """Refuse a plan that has expired."""
        if (time.time() if now is None else now) * 1000 >= parse_moment(self.expires):
            raise PlanExpired(f"{self.place} expired at {self.expires}", place=self.place)


def save(plan: Plan, place: str, reason: str | None, lifetime: float) -> SavedPlan:
    """Write a plan to a new file; an existing file is never overwritten."""
    if not 0 < lifetime <= MAX_LIFETIME:
        raise UsageError("a plan can be valid for at most 366 days", hint="choose a shorter time")
    now = time.time()
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "title": plan.title,
        "target": asdict(_subject(plan)),
        "made_at": units.utc(now),
        "by": str(myself()),
        "release": __version__,
        "reason": reason,
        "expires": units.utc(now + lifetime),
        "preconditions": [asdict(each) for each in plan.preconditions],
        "actions": [asdict(each) for each in plan.actions],
        "consequences": list(plan.consequences),
        "choices": [_choice_fields(each) for each in plan.choices],
        "work": dict(plan.work),
    }
    document["digest"] = _digest(document)
    path = local_root(place).absolute()
    if not path.parent.is_dir():
        raise NotFound(f"there is no directory {path.parent}", hint="check the path", place=place)
    beside, name = open_beside(place)
    if not beside.put_if_absent(name, _rendered(document)):
        raise SluicegateError(
            f"{place} already exists; a plan never overwrites a file",
            hint="name another file with --plan-out, or remove that one",
            place=place,
        )
    return _saved(document, place)


def load(place: str) -> SavedPlan:
    """The plan in a file, complete and unedited, or `Corrupt`."""
    path = _real(place)
    data = LocalStorage(path.parent).get(path.name, limit=_MAX_BYTES)
    try:
        document = json.loads(data, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as e:
        raise Corrupt(f"{place} is not a plan: {e}", hint=_HINT, place=place) from e
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise Corrupt(f"{place} is not a plan", hint=_HINT, place=place)
    if document.get("version") != VERSION:
        raise UnsupportedFormat(f"{place} is a plan of version {document.get('version')!r}")
    if document.pop("digest", None) != _digest(document):
        raise Corrupt(f"{place} was changed after it was made", hint=_HINT, place=place)
    document["digest"] = _digest(document)
    try:
        return _saved(document, place)
    except (KeyError, TypeError, ValueError, SluicegateError) as e:
        raise Corrupt(f"{place} is not a plan: {e!r}", hint=_HINT, place=place) from e


_HINT = "create a new plan with --plan-out and review it"


def _saved(document: dict[str, Any], place: str) -> SavedPlan:
    plan = Plan(
        title=_text(document["title"]),
        actions=tuple(Action(**each) for each in document["actions"]),
        consequences=tuple(_text(each) for each in document["consequences"]),
        preconditions=tuple(Precondition(**each) for each in document["preconditions"]),
        choices=tuple(_choice(each) for each in document["choices"]),
        subject=Subject(**document["target"]),
        work=dict(document["work"]),
    )
    assert plan.subject
    for each in plan.preconditions:
        _text(each.what)
    for text in (plan.subject.kind, plan.subject.uri, document["digest"]):
        _text(text)
    for text in (plan.subject.name, plan.subject.identity, document["reason"]):
        if text is not None:
            _text(text)
    parse_moment(_text(document["expires"]))
    return SavedPlan(
        plan=plan,
        by=_text(document["by"]),
        made_at=_text(document["made_at"]),
        expires=document["expires"],
        reason=document["reason"],
        release=_text(document["release"]),
        digest=document["digest"],
        place=place,
    )


def _choice_fields(choice: Choice) -> dict[str, str]:
    # Saved plans call the cost `gives_up`; a new key would be a new version of the format.
    fields = asdict(choice)
    return fields | {"gives_up": fields.pop("cost")}


def _choice(fields: dict[str, Any]) -> Choice:
    values = dict(fields)
    return Choice(cost=values.pop("gives_up"), **values)


def _real(place: str) -> Path:
    """The real path of a file: the operator named it, so a symbolic link to it is followed."""
    try:
        return local_root(place).resolve()
    except (RuntimeError, OSError) as e:
        raise StorageFailed(f"{place} cannot be found: {e}", place=place) from e


def _subject(plan: Plan) -> Subject:
    if plan.subject is None:
        raise SluicegateError("this plan has no target, so it cannot be saved")
    return plan.subject


def _rendered(document: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:
        # A path that is not valid text; escaped, it can still be identified.
        return (json.dumps(document, indent=2) + "\n").encode()


def _digest(document: dict[str, Any]) -> str:
    """The digest of all values but itself, independent of their layout in the file."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=32).hexdigest()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # If a key occurs twice, a reader sees the first and a program the last.
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode("utf-8", "surrogateescape")
    return value
