"""The plans of changes to a stream: what each does, depends on and means."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import replace

from sluicegate import units
from sluicegate.errors import Corrupt, Drifted, SluicegateError
from sluicegate.legacy import v1
from sluicegate.plan import Action, Plan, Precondition, Subject
from sluicegate.positions import Positions
from sluicegate.stream import gc
from sluicegate.stream.history import common_ancestor, content_of, restorable
from sluicegate.stream.operations import repair
from sluicegate.stream.operations.changes import (
    COMPACT,
    DEDUP,
    DEPOSE,
    IMPORT,
    PRUNE,
    REBALANCE,
    REPAIR,
    RESET,
    RESTORE,
    ROLLBACK,
    NeedsDedup,
    StreamChange,
    link_text,
    moves,
    standing,
)
from sluicegate.stream.operations.compactions import Compactions, Parts
from sluicegate.stream.snapshot import Link
from sluicegate.stream.stream import Stream
from sluicegate.stream.writer import Gate

KIND = "stream"
_FORCED = (
    "Forced: a job that runs is overtaken. It can seal nothing more, and stops at its next epoch."
)


class Planner:
    """Plans changes of one stream as it is now."""

    def __init__(self, stream: Stream, name: str | None) -> None:
        self._stream = stream
        self._name = name
        self.compactions = Compactions(stream)
        self._plans: dict[str, Callable[[StreamChange], Plan]] = {
            ROLLBACK: self._plan_rollback,
            RESET: self._plan_reset,
            COMPACT: self._with(self.compactions.plan_state),
            DEDUP: self._with(self.compactions.plan_dedup),
            RESTORE: self._with(self.compactions.plan_restore),
            PRUNE: self._plan_prune,
            REPAIR: self._plan_repair,
            IMPORT: self._plan_import,
            DEPOSE: self._plan_depose,
            REBALANCE: self._plan_rebalance,
        }

    def plan(self, change: StreamChange) -> Plan:
        """What a change means for the stream as it is now."""
        asked = change
        while True:
            change = self.compactions.settled(asked)
            try:
                plan = self._plans[change.operation](change)
                break
            except Drifted:
                if change is asked:
                    raise
                # What was to be merged is not there any more; what is now may be.
        if not plan.actions:
            return plan
        note = (f"Asked for: {change.note}.",) if change.note else ()
        forced = (_FORCED,) if change.force else ()
        told = (*note, *plan.consequences, *forced)
        return replace(plan, consequences=told, work=change.to_work())

    def _plan_rollback(self, change: StreamChange) -> Plan:
        head = self._stream.chain.head()
        assert change.to is not None
        aim = restorable(self._stream, head, change.to)
        title = f"Roll {self._stream.name} back to {link_text(aim)}"
        needs = (*standing(head, force=change.force), Precondition("the link's digest", aim.digest))
        if _same_content(aim, head):
            return self._plan_of(title, [], [], needs)
        shown = not change.force
        actions = moves(head.positions, aim.positions, counted=True) if shown else []
        actions.append(_restored("state", aim.state == head.state, f"as of {link_text(aim)}"))
        if aim.dedup or head.dedup:
            actions.append(_restored("dedup log", aim.dedup == head.dedup, "with it"))
        told = _abandoned(self._stream, head, aim) if shown else [_abandoned_by_force(aim)]
        told.append(
            "At the next start the published output is made to match: what was given up is "
            "withdrawn, though downstream readers may have consumed it."
        )
        return self._plan_of(title, actions, told, needs)

    def _plan_reset(self, change: StreamChange) -> Plan:
        head = self._stream.chain.head()
        assert change.positions is not None
        # Where nothing was counted yet, nothing can be counted twice.
        if head.sequence and not head.dedup:
            raise NeedsDedup(
                f"{self._stream.name} keeps no dedup log, so what it reads again it would count "
                "again; --skip-seen cannot work"
            )
        new = head.positions.updated(change.positions)
        actions = moves(head.positions, new)
        told = []
        if back := sum(-(a.delta or 0) for a in actions if (a.delta or 0) < 0):
            told.append(
                f"Re-reads {units.events(back)}. What is in the dedup log is dropped; only gaps "
                "are filled."
            )
        if on := sum(a.delta or 0 for a in actions if (a.delta or 0) > 0):
            told.append(f"Skips {units.events(on)}: what was not read by now is never read.")
        needs = standing(head, force=change.force)
        return self._plan_of(f"Reset the positions of {self._stream.name}", actions, told, needs)

    def _plan_prune(self, change: StreamChange) -> Plan:
        head = self._stream.chain.head()
        assert change.to is not None
        floor = min(change.to, gc.highest_floor(self._stream, head))
        title = f"Prune {self._stream.name}"
        actions = []
        if floor > head.floor:
            count = floor - head.floor
            which = f"{head.floor} to {floor - 1}, {count} of them"
            actions.append(Action("give up", "links", which, head.floor, floor))
        elif swept := gc.sweep(self._stream, dry_run=True):
            actions.append(Action("remove", "leftovers", swept.shown))
        told = [
            f"The oldest link that can be gone back to will be {floor}. This cannot be undone.",
            "Blobs that nothing refers to any more are removed when they are a day old.",
        ]
        needs = (Precondition("the stream", head.stream_id), Precondition("the floor", head.floor))
        return self._plan_of(title, actions, told if actions else [], needs)

    def _plan_repair(self, change: StreamChange) -> Plan:
        found = repair.diagnose(self._stream, read_data=change.read_data)
        repair.refuse_hopeless(self._stream, found)
        title = f"Repair {self._stream.name}"
        actions = []
        base = found.base
        assert base
        if found.needs_link:
            actions = [Action("give up", d.shown, d.what) for d in found.damaged]
            actions += [
                Action("mark unusable", f"link {a}" if a == b else f"links {a}-{b}", "blobs")
                for a, b in found.unusable
            ]
            where = f"link {found.found.newest + 1}"
            actions.append(Action("append", where, f"going on from {link_text(base)}"))
            if found.loses:
                actions += (
                    moves(found.found.head.positions, base.positions)
                    if (found.found.head and found.found.head.number == found.found.newest)
                    else []
                )
        if found.below_floor:
            actions.append(Action("remove", f"{found.below_floor} links", "below the floor"))
        told = [repair.loss(found)] if found.needs_link else []
        if found.needs_link:
            told.append("A job that runs stops at its next epoch.")
        needs = (Precondition("what is wrong", found.digest()),)
        return self._plan_of(title, actions, told, needs)

    def _plan_import(self, change: StreamChange) -> Plan:
        head = self._stream.chain.head()
        checkpoint = v1_of(change)
        new = Positions({name: {0: offset} for name, offset in checkpoint.sources.items()})
        actions = moves(head.positions, new)
        actions.append(
            Action("replace", "state", f"by {len(checkpoint.operators)} operators' states")
        )
        told = [
            f"The stream goes on after sequence {checkpoint.sequence}, the last that the file has.",
            "What the stream counted itself is given up.",
        ]
        needs = standing(head, force=change.force)
        return self._plan_of(f"Import a checkpoint into {self._stream.name}", actions, told, needs)

    def _plan_depose(self, _change: StreamChange) -> Plan:
        head = self._stream.chain.head()
        living = Gate(self._stream).living_writer(head)
        title = f"Fence the job of {self._stream.name} off"
        if head.writer is None or head.writer.startswith("none-"):
            return self._plan_of(title, [], [], ())
        actions = [Action("claim", "the stream", "for nobody")]
        told = [f"{living or 'The run ' + head.writer} can seal nothing more. Start the job again."]
        needs = (Precondition("the run that may seal", head.writer),)
        return self._plan_of(title, actions, told, needs)

    def _plan_rebalance(self, change: StreamChange) -> Plan:
        # Imported here: only assignments need its libraries.
        from sluicegate.stream.operations.rebalance import parts

        return self._plan_of(*parts(self._stream, change))

    def _with(self, parts: Callable[[StreamChange], Parts]) -> Callable[[StreamChange], Plan]:
        return lambda change: self._plan_of(*parts(change))

    def _plan_of(
        self,
        title: str,
        actions: list[Action],
        told: list[str],
        needs: tuple[Precondition, ...],
    ) -> Plan:
        return Plan(
            title=title,
            actions=tuple(actions),
            consequences=tuple(told),
            preconditions=needs,
            subject=Subject(KIND, self._stream.uri, self._name, self._identity()),
        )

    def _identity(self) -> str | None:
        try:
            return self._stream.chain.head().stream_id
        except SluicegateError:
            return None


def v1_of(change: StreamChange) -> v1.V1Checkpoint:
    """The checkpoint that an import carries."""
    try:
        data = base64.b64decode(change.data or "", validate=True)
    except binascii.Error as e:
        raise Corrupt("the plan does not hold the file to import") from e
    return v1.decode(data, "the file to import")


def _same_content(aim: Link, head: Link) -> bool:
    ours, theirs = content_of(aim), content_of(head)
    return all(ours[name] == theirs[name] for name in ours if name != "lineage")


def _restored(what: str, same: bool, detail: str) -> Action:
    return Action("keep" if same else "restore", what, "the same" if same else detail)


def _abandoned(stream: Stream, head: Link, aim: Link) -> list[str]:
    """What going from one link to another gives up, and what it brings back."""
    if aim.number == head.number:
        return []
    fork = common_ancestor(stream, head, aim)
    since = fork.sequence if fork else 0
    lost, regained = head.sequence - since, aim.sequence - since
    told = []
    if lost:
        start = f"link {fork.number}" if fork else "the beginning"
        told.append(
            f"Gives up what was sealed since {start}: {units.events(lost)}. They are read again."
        )
    if regained:
        told.append(f"Brings back {units.events(regained)} that an earlier change took away.")
    return told


def _abandoned_by_force(aim: Link) -> str:
    return f"Gives up whatever was sealed after {link_text(aim)}. It is read again."
