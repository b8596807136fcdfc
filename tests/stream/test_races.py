"""The race table: another process's snapshot comes at every call that an append makes.

`A` was drafted for a head. At one of its system calls `B` runs from beginning to end, as another
process on the same disk. The lower number came first, and the table decides what becomes of
the other; also when `A` is killed at that very call, with or without a power loss.

Every call is tried for the row of the epochs, which is what exactly-once hangs on, and every eighth
for the others, beginning elsewhere for each pair; of whole work, which makes hundreds of calls,
every twenty-ninth. With SG_LAB_ALL=1 every call is tried for everything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sluicegate.errors import (
    Drifted,
    Fenced,
    Locked,
    SluicegateError,
    SplitBrainCommit,
    StaleGeneration,
    StaleVersion,
)
from sluicegate.state import manifest
from sluicegate.state.backend import DeltaConflict, EpochIncomplete
from sluicegate.storage.blobs import BlobDamaged
from sluicegate.storage.local import Calls
from sluicegate.stream import gc
from sluicegate.stream.append import (
    ClaimDraft,
    CompactDraft,
    Draft,
    Epoch,
    EpochDraft,
    NewGenerationDraft,
    PruneDraft,
    RebalanceDraft,
    Signature,
)
from sluicegate.stream.chain import HEAD, Hint, read_hint
from sluicegate.stream.history import NotRestorable, content_of
from sluicegate.stream.operations.compact import compact
from sluicegate.stream.snapshot import Kind, Snapshot, key_of
from sluicegate.stream.state import shards_of
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import StreamWriter
from tests.stream.streams import (
    NothingToDo,
    apply,
    as_run,
    at,
    check,
    commit,
    epoch_after,
    errors_of,
    in_memory,
    made,
    opened,
    resume_job,
    work,
)
from tests.support.faults import Aftermath, Disk, Killed

EVERY = 1 if os.environ.get("SG_LAB_ALL") else 8
RUN = "run"
REBASE, DROP = "rebase", "drop"
Outcome = str | type[SluicegateError]


@dataclass
class Template:
    """A stream of four epochs, on which everything is prepared that the drafts refer to."""

    root: Path
    base: Snapshot
    epoch: Epoch
    drafts: dict[str, Draft] = field(default_factory=dict)


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    with in_memory() as path:
        stream = made(path / "home", dedup=True)
        with StreamWriter(stream).claim(run=RUN) as run:
            for _ in range(4):
                base = commit(run)
        epoch = epoch_after(StreamWriter(stream), base)
        made_drafts = _drafts(stream, base, epoch)
        yield Template(path / "home", base, epoch, made_drafts)


def _drafts(stream: Stream, base: Snapshot, epoch: Epoch) -> dict[str, Draft]:
    sign = Signature
    older = stream.chain.read(3)
    back, moved = content_of(older), {"positions": at(3, 3)}
    result = manifest.compacted(stream.blobs, shards_of(stream, base))
    plan = stream.blobs.put(b"an assignment")
    drafts: dict[str, Draft] = {
        "epoch": EpochDraft(RUN, epoch, sign()),
        "compact": CompactDraft(base.state, result, sign(), {}),
        "rebalance": RebalanceDraft(base.version, base.generation, plan, sign(), {}),
        "claim": ClaimDraft("a", sign()),
        "prune": PruneDraft(3, sign(), {}),
    }
    for name, force in (("", False), ("forced ", True)):
        drafts |= {
            f"{name}rollback": NewGenerationDraft(Kind.ROLLBACK, back, force, sign(), base),
            f"{name}reset": NewGenerationDraft(Kind.RESET, moved, force, sign(), base),
        }
    return drafts


def _append(stream: Stream, draft: Callable[[Snapshot], Draft]) -> Snapshot:
    writer = StreamWriter(stream)
    head = writer.head()
    snapshot = writer.append(draft(head), head)
    assert snapshot
    return snapshot


def _rebalance(stream: Stream) -> Snapshot:
    blob = stream.blobs.put(b"another assignment")
    return _append(stream, lambda h: RebalanceDraft(h.version, h.generation, blob, Signature(), {}))


def _take_over(stream: Stream) -> Snapshot:
    return _append(stream, lambda _: ClaimDraft("b", Signature()))


def _take_over_and_commit(stream: Stream) -> Snapshot:
    snapshot = _take_over(stream)
    commit(as_run(stream, "b", snapshot))
    return snapshot


def _compact(stream: Stream) -> Snapshot | None:
    return compact(StreamWriter(stream))


def _rollback(stream: Stream) -> Snapshot:
    older = content_of(stream.chain.read(4))
    return _append(stream, lambda h: NewGenerationDraft(Kind.ROLLBACK, older, True, Signature(), h))


def _reset(stream: Stream) -> Snapshot:
    moved = {"positions": at(6, 6)}
    return _append(stream, lambda h: NewGenerationDraft(Kind.RESET, moved, True, Signature(), h))


def _prune(stream: Stream) -> Snapshot:
    """Prunes all but the newest snapshots, and removes them if it may."""
    snapshot = _append(stream, lambda _: PruneDraft(5, Signature(), {}))
    try:
        gc.sweep(stream)
    except Locked:
        # Another process is appending.
        assert (Path(stream.uri) / key_of(3)).exists()
    return snapshot


def _repair(stream: Stream) -> Snapshot:
    """Of a snapshot that is not the newest: only a rollback to it is lost."""
    path = Path(stream.uri) / key_of(2)
    content = path.read_bytes()
    path.write_bytes(content[:10])
    try:
        apply(stream, "repair")
    except Locked:
        path.write_bytes(content)
        raise
    return stream.chain.head()


OTHERS: dict[str, Callable[[Stream], Snapshot | None]] = {
    "compact": _compact,
    "prune": _prune,
    "rebalance": _rebalance,
    "claim": _take_over,
    "epoch": _take_over_and_commit,
    "rollback": _rollback,
    "reset": _reset,
    "repair": _repair,
}
COLUMNS = list(OTHERS)
# What becomes of the row if the column came first; columns in the order above.
TABLE: dict[str, list[Outcome]] = {
    "epoch": [
        *(REBASE, REBASE, StaleVersion),
        *(SplitBrainCommit, SplitBrainCommit),
        *(StaleGeneration, StaleGeneration, StaleGeneration),
    ],
    # A rollback reverts some of what was compacted; the reset and the repair do not.
    "compact": [DROP, REBASE, REBASE, REBASE, REBASE, DROP, REBASE, REBASE],
    "rebalance": [REBASE, REBASE, Drifted, REBASE, REBASE, Drifted, Drifted, Drifted],
    "rollback": [REBASE, REBASE, REBASE, Locked, Locked, Drifted, Drifted, Drifted],
    "reset": [REBASE, REBASE, REBASE, Locked, Locked, Drifted, Drifted, Drifted],
    "forced rollback": [REBASE, REBASE, REBASE, REBASE, REBASE, Drifted, Drifted, Drifted],
    "forced reset": [REBASE, REBASE, REBASE, REBASE, REBASE, Drifted, Drifted, Drifted],
    "claim": [REBASE] * 8,
    "prune": [REBASE, DROP, *[REBASE] * 6],
}
PAIRS = [(row, column) for row in TABLE for column in COLUMNS]


@dataclass
class Race:
    """One run: what became of both."""

    root: Path
    disk: Disk
    outcome: Outcome = ""
    snapshot: Snapshot | None = None
    other: Snapshot | None = None
    locked: bool = False
    calls: int = 0


def race(template: Template, row: str, column: str, at_call: int, *, kill: bool = False) -> Race:
    """Append the row's draft, with the column's work inside its call of that number."""
    root = template.root.parent / "race"
    if root.exists():
        shutil.rmtree(root)
    shutil.copytree(template.root, root)
    found = Race(root, Disk(root))
    # A second nonce, or the copies of one template would be each other's lost replies.
    draft = template.drafts[row]

    def run_other() -> None:
        try:
            found.other = OTHERS[column](opened(root, found.disk.process(), timeout=0))
        except Locked:
            found.locked = True
        if kill:
            raise Killed

    def on_call(number: int, _call: str) -> None:
        found.calls = number + 1
        if number == at_call:
            run_other()

    stream = opened(root, found.disk.process(on_call))
    try:
        if at_call < 0:
            run_other()
        found.snapshot = StreamWriter(stream).append(draft, template.base)
        found.outcome = REBASE if found.snapshot else DROP
    except Killed:
        found.outcome = "killed"
    except SluicegateError as e:
        found.outcome = type(e)
    return found


def check_race(template: Template, row: str, column: str, found: Race, *, deep: bool) -> None:
    stream = opened(found.root)
    head = check(stream, read=False) if deep else stream.chain.head()
    snapshots = {n: stream.chain.read(n) for n in range(max(6, head.floor), head.number + 1)}
    nonce = template.drafts[row].signature.nonce  # type: ignore[attr-defined]
    ours = [snapshot for snapshot in snapshots.values() if snapshot.nonce == nonce]
    assert len(ours) <= 1
    if found.snapshot:
        assert [snapshot.digest for snapshot in ours] == [found.snapshot.digest], (
            "acknowledged is there"
        )
    elif found.outcome != "killed":
        assert ours == [], "refused is not there"
    if found.other is None:
        # Who needs the collect lock for himself is kept out by an append, and what another
        # compact has just done need not be done.
        assert (row, column) == ("compact", "compact") or (found.locked and column == "repair")
        assert found.outcome in (REBASE, "killed")
        return
    assert snapshots[found.other.number].digest == found.other.digest
    other_first = found.other.number == template.base.number + 1
    if found.outcome == "killed":
        assert not (ours and other_first), "the dead append nothing"
    elif other_first:
        assert found.outcome == TABLE[row][COLUMNS.index(column)]
    else:
        assert found.outcome == REBASE


def sampled(row: str, column: str) -> Iterator[int]:
    """The calls to try, for ever: first of all none, with the other before the append."""
    step = 1 if row == "epoch" else EVERY
    yield -1
    yield from count(PAIRS.index((row, column)) % step, step)


@pytest.mark.parametrize(("row", "column"), PAIRS, ids=[f"{a}, {b}" for a, b in PAIRS])
def test_the_table_holds_at_every_call(template: Template, row: str, column: str) -> None:
    seen: dict[tuple[bool, Outcome], int] = {}
    for number in sampled(row, column):
        found = race(template, row, column, number)
        if number >= found.calls:
            break
        first = bool(found.other and found.other.number == template.base.number + 1)
        try:
            key = (first, found.outcome)
            check_race(template, row, column, found, deep=key not in seen)
        except BaseException as e:
            e.add_note(f"{row} with {column} at call {number} of {found.calls}: {found}")
            raise
        seen[key] = number
    assert {first for first, _ in seen} == {True, False}, "each must come first at some call"


@pytest.mark.parametrize("row", TABLE)
def test_who_is_killed_in_a_race_leaves_a_complete_chain(template: Template, row: str) -> None:
    """Killed at the call in which the other ran; the columns take turns."""
    aftermaths = (Aftermath.KILL, Aftermath.POWER_LOSS)
    columns = [column for column in COLUMNS if column != "repair"]
    for number in count(0, 1 if row == "epoch" or EVERY == 1 else 4):
        column, aftermath = columns[number % len(columns)], aftermaths[number % 2]
        found = race(template, row, column, number, kill=True)
        if number >= found.calls:
            break
        found.disk.crash(aftermath)
        try:
            check_race(template, row, column, found, deep=True)
            resume_job(opened(found.root))
        except BaseException as e:
            e.add_note(f"{row} killed with {column} at call {number}, {aftermath}")
            raise
    assert number > 15


def _commit(stream: Stream) -> object:
    return commit(as_run(stream, RUN))


def _claim(stream: Stream) -> None:
    with StreamWriter(stream).claim(run="a") as run:
        commit(run)


# Work as commands and jobs do it, from the first look to the end.
WHOLE: dict[str, Callable[[Stream], object]] = {
    "commit": _commit,
    "claim": _claim,
    "compact": lambda stream: compact(StreamWriter(stream)),
    "rollback": lambda stream: apply(stream, "rollback", to=3),
    "forced reset": lambda stream: apply(stream, "reset", positions=at(3, 3), force=True),
    "prune": lambda stream: gc.prune(StreamWriter(stream), 4, grace=-1),
    "repair": lambda stream: apply(stream, "repair"),
}
INSIDE: dict[str, Callable[[Stream], object]] = {
    "commit": _commit,
    "epoch": _take_over_and_commit,
    "prune": _prune,
    "rollback": _rollback,
}
# The other one swept what was not committed yet, or committed an epoch of that number itself.
UNSEALED = (BlobDamaged, DeltaConflict, EpochIncomplete)


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("whole", WHOLE)
def test_all_work_with_another_inside(template: Template, whole: str, inside: str) -> None:
    """Each is done or refused, and the chain is one that the table allows."""
    step = 1 if EVERY == 1 else 29
    root = template.root.parent / "whole"
    refused = (Fenced, Locked, Drifted, NotRestorable, NothingToDo, *UNSEALED)
    calls = 0
    for number in count(3 * len(whole + inside) % step, step):
        if root.exists():
            shutil.rmtree(root)
        shutil.copytree(template.root, root)
        if whole == "repair":
            os.truncate(root / "clicks" / key_of(2), 10)
        disk = Disk(root)
        outcome: dict[str, Any] = {}
        on_call = partial(_inside, disk, number, inside, outcome)
        try:
            WHOLE[whole](opened(root, disk.process(on_call), timeout=0))
        except refused as e:
            outcome["whole"] = e
        calls = outcome["calls"]
        if number >= calls:
            break
        try:
            # A snapshot that a repair did not come to is damaged still, whatever the chain did.
            stream = opened(root)
            if whole == "repair" and "whole" in outcome:
                with suppress(NothingToDo):
                    apply(stream, "repair")
            check(stream, read=False)
        except BaseException as e:
            e.add_note(f"{whole} with {inside} at call {number} of {calls}: {outcome}")
            raise
    assert calls > 20


def _inside(disk: Disk, wanted: int, inside: str, outcome: dict[str, Any], n: int, _: str) -> None:
    outcome["calls"] = n + 1
    if n != wanted:
        return
    try:
        INSIDE[inside](opened(disk.root, disk.process(), timeout=0))
    except (Locked, Fenced, Drifted, *UNSEALED) as e:
        outcome["inside"] = e


class Paused(Calls):
    """System calls that do something else first, once, before a snapshot gets its name."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], None] | None = meanwhile

    def link(self, source: str, name: str, directory: int, origin: int | None = None) -> None:
        if name.endswith(".snapshot") and self._meanwhile:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()
        super().link(source, name, directory, origin)


def test_a_pruned_number_cannot_come_back() -> None:
    """A writer is frozen for so long that its number is used, pruned and free again.

    The locks of a file system prevent that; the chain must not depend on them.
    """
    with in_memory() as root:
        made(root / "home", epochs=2)

        def meanwhile() -> None:
            stream = opened(root / "home")
            work(stream, 6, force=True)
            chain, head = stream.chain, stream.chain.head()
            pruned = Signature().next(head, Kind.PRUNE, floor=head.number)
            chain.append(pruned)
            for number in range(head.number):
                stream.storage.delete(key_of(number))

        chain = opened(root / "home", Paused(meanwhile)).chain
        head = chain.head()
        late = Signature().next(head, Kind.CLAIM, writer="late")
        with pytest.raises(SplitBrainCommit, match="is pruned"):
            chain.append(late)
        stream = opened(root / "home")
        assert stream.chain.raw(late.number) is None
        assert stream.chain.head().kind is Kind.PRUNE
        assert errors_of(stream) == []
        resume_job(stream)


def test_head_never_goes_back() -> None:
    """A writer is frozen between its snapshot and the hint; others go on meanwhile."""
    with in_memory() as root:
        made(root / "home", epochs=2)
        first, second = opened(root / "home").chain, opened(root / "home").chain
        one = first.append(Signature().next(first.head(), Kind.CLAIM, writer="one"))
        assert one
        two = second.append(Signature().next(second.head(), Kind.CLAIM, writer="two"))
        assert two
        first._hint_at(one)
        assert read_hint(first.storage, HEAD) == Hint.of(two)
