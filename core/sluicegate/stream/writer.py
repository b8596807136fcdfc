"""The gate: the one way snapshots get onto a chain."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

from sluicegate.errors import (
    Fenced,
    Locked,
    NotFound,
    SluicegateError,
    SplitBrainCommit,
    StaleGeneration,
    StorageFailed,
    UsageError,
)
from sluicegate.positions import Positions
from sluicegate.process import GONE
from sluicegate.state import manifest
from sluicegate.storage.blobs import BlobDamaged, Ref
from sluicegate.stream.append import ClaimDraft, Draft, Epoch, EpochDraft, Signature, told
from sluicegate.stream.snapshot import Kind, Snapshot, SnapshotDamaged
from sluicegate.stream.stream import Stream
from sluicegate.units import command


class WriterStopped(Fenced):
    """A write of this run failed, so what is durable is not known to it; it must start anew."""

    default_hint = "start the job again: it goes on from what is durable"


class Gate:
    """One stream, to append snapshots to."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def genesis(
        self,
        positions: Positions,
        *,
        pins: Mapping[str, Any] | None = None,
        signature: Signature | None = None,
        content: Mapping[str, Any] | None = None,
    ) -> Snapshot:
        """Begin a chain at resolved positions; refused where one is, was or may be."""
        signature = signature or Signature()
        self.refuse_begun()
        first = Snapshot(
            stream=self.stream.name,
            stream_id=str(uuid.uuid4()),
            number=0,
            kind=Kind.GENESIS,
            parent=None,
            generation=1,
            writer=None,
            nonce=signature.nonce,
            by=signature.by,
            created_at=time.time(),
            app=signature.app,
            reason=signature.reason,
            positions=positions.checked(),
            pins=dict(pins or {}),
            ancestry=((0, 0),),
            **dict(content or {}),
        )
        with self.stream.referring():
            self._check_refs(first)
            appended = self.stream.chain.append(first)
        if appended is None:
            raise Locked(f"{self.stream.uri} was begun by somebody else at the same time")
        return appended

    def refuse_begun(self) -> None:
        """Refuse a place where a chain is, or was according to what the home remembers."""
        with suppress(NotFound):
            self.stream.chain.head()
            raise UsageError(
                f"{self.stream.uri} has a chain already",
                hint=f"look at it with: {command('checkpoint', 'inspect', self.stream.uri)}",
            )

    def head(self) -> Snapshot:
        """The newest snapshot, durable, to build on."""
        head = self.stream.chain.open_head()
        self.stream.chain.check_above(head)
        return head

    def append(self, draft: Draft, base: Snapshot) -> Snapshot | None:
        """Append a draft that was made for `base`; None if there is nothing left to do.

        What came in between decides: the draft follows it, or raises what the table asks for.
        """
        chain = self.stream.chain
        with self.stream.referring():
            head = chain.head()
            if head.digest != base.digest:
                # Somebody else's, who may have died before the last fsync; the base is durable.
                head = chain.open_head()
            while True:
                if head.number < base.number or head.stream_id != base.stream_id:
                    raise StorageFailed(
                        f"{self.stream.uri} went back behind snapshot {base.number}"
                    )
                snapshot = draft.on(head, self.since(base, head), self.stream.blobs)
                if snapshot is None:
                    return None
                self._check_refs(snapshot, head)
                if appended := chain.append(snapshot):
                    return appended
                head = chain.head()

    @contextmanager
    def claim(
        self,
        *,
        run: str | None = None,
        app: str | None = None,
        pins: Mapping[str, Any] | None = None,
        force: bool = False,
    ) -> Iterator[Run]:
        """Be the run that commits, for the length of a `with` block."""
        run = run or new_run()
        with ExitStack() as stack:
            # Before the snapshot, so that whoever sees the claim also sees that it is alive.
            stack.enter_context(self.stream.run_lock(run).hold(timeout=0))
            with self.stream.referring():
                head = self.head()
                # Epochs on top of a state that is not there would be lost with it.
                self._check_refs(head)
            check_pins(head, pins)
            # One that had our own name is gone: we hold its lock.
            if not force and head.writer != run:
                self.refuse_living(head)
            draft = _Claim(ClaimDraft(run, Signature(app=app)), self, force=force)
            snapshot = self.append(draft, head)
            assert snapshot
            yield Run(self, run, snapshot, app)

    def depose(self, signature: Signature, details: Mapping[str, Any]) -> Snapshot:
        """A claim that nobody uses: whoever runs now can never commit again."""
        head = self.head()
        snapshot = self.append(ClaimDraft(f"none-{new_run()}", signature, details), head)
        assert snapshot
        return snapshot

    def refuse_living(self, head: Snapshot) -> None:
        """`Locked`, with the evidence, if the run that may commit is alive."""
        if evidence := self.living_writer(head):
            raise Locked(
                f"a job is at work on {self.stream.name}: {evidence}",
                hint="stop it first; or take over with --force, after which it can commit no more",
            )

    def living_writer(self, head: Snapshot) -> str | None:
        """Evidence that the head's run is alive; None if it is not."""
        if head.writer is None:
            return None
        lock = self.stream.run_lock(head.writer)
        if not lock.is_held():
            return None
        holders = [h.describe() for h in lock.holders() if h.who.process_state() != GONE]
        return f"run {head.writer}, " + ("; ".join(holders) or "which left no note")

    def since(self, base: Snapshot, head: Snapshot) -> list[Snapshot]:
        """What came after the base; what was pruned or damaged since is not known any more."""
        since: list[Snapshot] = []
        first = max(base.number + 1, head.floor)
        with suppress(SnapshotDamaged):
            since.extend(self.stream.chain.walk(head.number, first))
        return since[::-1]

    def _check_refs(self, snapshot: Snapshot, head: Snapshot | None = None) -> None:
        """`BlobDamaged` unless all blobs that a snapshot adds to the head's are there."""
        known = set(head.refs) if head else set()
        for ref in snapshot.refs:
            if ref not in known:
                self.stream.blobs.check(ref)
        for ref in {*snapshot.state.refs} - known:
            for each in _deltas(self.stream, ref):
                self.stream.blobs.check(each)


class Run:
    """One run of a job: the only one that can commit, until another claims the stream."""

    def __init__(self, gate: Gate, run: str, claim: Snapshot, app: str | None) -> None:
        self.id = run
        self.snapshot = claim
        self._gate = gate
        self._app = app
        self._stopped = False

    @property
    def stream(self) -> Stream:
        """The stream that it runs on."""
        return self._gate.stream

    def commit(self, epoch: Epoch, nonce: str | None = None) -> Snapshot:
        """Commit an epoch, durably; the errors say whether to route again or to stop.

        `nonce` is the snapshot's, if something is named by it already.
        """
        if self._stopped:
            raise WriterStopped("an earlier commit of this run was interrupted, or failed to write")
        if epoch.generation != self.snapshot.generation:
            raise StaleGeneration(
                f"this run began at generation {self.snapshot.generation}, its epoch is of "
                f"{epoch.generation}"
            )
        signature = Signature(app=self._app)
        signature = replace(signature, nonce=nonce) if nonce else signature
        draft = EpochDraft(self.id, epoch, signature)
        try:
            snapshot = self._gate.append(draft, self.snapshot)
        except (Fenced, Locked, UsageError, BlobDamaged):
            # Refused before anything was written.
            raise
        except BaseException:
            # It may or may not be durable. Only a new start can tell, by reading the chain.
            self._stopped = True
            raise
        assert snapshot
        self.snapshot = snapshot
        return snapshot

    def refresh(self) -> Snapshot:
        """The head as it is now, to route the next epoch by; errors as for `commit`."""
        head = self._gate.head()
        again = any(
            snapshot.kind is Kind.CLAIM for snapshot in self._gate.since(self.snapshot, head)
        )
        if again or head.writer != self.id or head.generation != self.snapshot.generation:
            raise _overtaken(self._gate.stream, self.snapshot, head)
        self.snapshot = head
        return head


class _Claim:
    """A claim draft that asks again whether the writer lives, if another run came first."""

    def __init__(self, draft: ClaimDraft, gate: Gate, *, force: bool) -> None:
        self._draft = draft
        self._gate = gate
        self._force = force

    def on(self, head: Snapshot, since: Any, blobs: Any) -> Snapshot | None:
        if since and not self._force and head.writer != self._draft.run:
            self._gate.refuse_living(head)
        return self._draft.on(head, since, blobs)


def new_run() -> str:
    """A name for a run: when it began, and something that no other run has."""
    return time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + uuid.uuid4().hex[:12]


def check_pins(head: Snapshot, pins: Mapping[str, Any] | None) -> None:
    """Refuse a stream table that differs from what genesis pinned."""
    for name in sorted((pins or {}).keys() | head.pins.keys()) if pins is not None else ():
        if pins is not None and pins.get(name) != head.pins.get(name):
            raise UsageError(
                f"{name} of stream {head.stream} was {head.pins.get(name)!r} when it began, and is "
                f"{pins.get(name)!r} now; it is fixed for the life of the stream",
                hint="put the old value back, or begin a new stream",
            )


def _overtaken(stream: Stream, known: Snapshot, head: Snapshot) -> SluicegateError:
    if head.generation != known.generation:
        return StaleGeneration(f"the stream is at generation {head.generation}: {told(head)}")
    return SplitBrainCommit(f"the run {head.writer} took over {stream.name}: {told(head)}")


def _deltas(stream: Stream, ref: Ref) -> set[Ref]:
    shards = manifest.read(stream.blobs, ref)
    return {each for refs in shards.values() for each in refs}
