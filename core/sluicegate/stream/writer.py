"""Writing to a stream: claims, and the one way snapshots get onto a chain."""

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
from sluicegate.stream.append import ClaimDraft, Draft, Epoch, EpochDraft, Signature, described
from sluicegate.stream.snapshot import Kind, Snapshot, SnapshotDamaged
from sluicegate.stream.spec import INCARNATION
from sluicegate.stream.stream import Stream
from sluicegate.units import command


class WriterStopped(Fenced):
    """A write of this run failed, so it does not know what is durable; it must start again."""

    default_hint = "start the job again: it resumes from the newest durable snapshot"


class StreamWriter:
    """Appends snapshots to one stream."""

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
        """Begin a chain at resolved positions; refused where there is one, or was or may be."""
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
            raise Locked(f"{self.stream.uri} was created by another process at the same time")
        return appended

    def refuse_begun(self) -> None:
        """Refuse a place that has a chain, or had one according to the home."""
        with suppress(NotFound):
            self.stream.chain.head()
            raise UsageError(
                f"{self.stream.uri} already has a chain",
                hint=f"inspect it with: {command('checkpoint', 'inspect', self.stream.uri)}",
            )

    def head(self) -> Snapshot:
        """The newest snapshot, durable, to build on."""
        head = self.stream.chain.open_head()
        self.stream.chain.check_above(head)
        return head

    def append(self, draft: Draft, base: Snapshot) -> Snapshot | None:
        """Append a draft that was made for `base`; None if there is nothing left to do.

        The snapshots in between decide: the draft follows them, or raises the error of the table
        in `append`.
        """
        chain = self.stream.chain
        with self.stream.referring():
            head = chain.head()
            if head.digest != base.digest:
                # Of another process, which may have died before its fsync; the base is durable.
                head = chain.open_head()
            while True:
                if head.number < base.number or head.stream_id != base.stream_id:
                    raise StorageFailed(
                        f"{self.stream.uri} is older than snapshot {base.number}; "
                        "was a backup restored?"
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
        """Become the current writer, for the length of a `with` block."""
        run = run or new_run()
        with ExitStack() as stack:
            # Before the snapshot, so that a process that sees the claim sees that it is alive.
            stack.enter_context(self.stream.run_lock(run).hold(timeout=0))
            with self.stream.referring():
                head = self.head()
                # Epochs on top of a state that is not there would be lost with it.
                self._check_refs(head)
            check_pins(head, pins)
            # An earlier run of our own name has ended: we hold its lock.
            if not force and head.writer != run:
                self.refuse_living(head)
            moved = {"source": pins["source"]} if pins and "source" in pins else {}
            draft = _Claim(ClaimDraft(run, Signature(app=app), pins=moved), self, force=force)
            snapshot = self.append(draft, head)
            assert snapshot
            yield Run(self, run, snapshot, app)

    def fence_off(self, signature: Signature, details: Mapping[str, Any]) -> Snapshot:
        """Append a claim that no run uses: the current writer can never commit again."""
        head = self.head()
        snapshot = self.append(ClaimDraft(f"none-{new_run()}", signature, details), head)
        assert snapshot
        return snapshot

    def refuse_living(self, head: Snapshot) -> None:
        """`Locked`, with the evidence, if the current writer is alive."""
        if evidence := self.living_writer(head):
            raise Locked(
                f"{self.stream.name} has an active writer: {evidence}",
                hint="stop it first, or take over with --force: it then cannot commit any more",
            )

    def living_writer(self, head: Snapshot) -> str | None:
        """Evidence that the head's run is alive; None if it is not."""
        if head.writer is None:
            return None
        lock = self.stream.run_lock(head.writer)
        if not lock.is_held():
            return None
        holders = [h.describe() for h in lock.holders() if h.who.process_state() != GONE]
        return f"run {head.writer}, " + ("; ".join(holders) or "process not recorded")

    def since(self, base: Snapshot, head: Snapshot) -> list[Snapshot]:
        """The snapshots after the base, without those that were pruned or damaged since."""
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
    """One run of a job: the current writer, until another run claims the stream."""

    def __init__(self, writer: StreamWriter, run: str, claim: Snapshot, app: str | None) -> None:
        self.id = run
        self.snapshot = claim
        self._writer = writer
        self._app = app
        self._stopped = False

    @property
    def stream(self) -> Stream:
        """The stream that it runs on."""
        return self._writer.stream

    def commit(self, epoch: Epoch, nonce: str | None = None) -> Snapshot:
        """Commit an epoch, durably; the error shows whether to route again or to stop.

        `nonce` is for the snapshot, if files are named by it already.
        """
        if self._stopped:
            raise WriterStopped("an earlier commit of this run was interrupted, or failed to write")
        if epoch.generation != self.snapshot.generation:
            raise StaleGeneration(
                f"this run began at generation {self.snapshot.generation}, but its epoch is of "
                f"{epoch.generation}"
            )
        signature = Signature(app=self._app)
        signature = replace(signature, nonce=nonce) if nonce else signature
        draft = EpochDraft(self.id, epoch, signature)
        try:
            snapshot = self._writer.append(draft, self.snapshot)
        except (Fenced, Locked, UsageError, BlobDamaged):
            # Refused before anything was written.
            raise
        except BaseException:
            # It may or may not be durable. Only a new start finds out, by reading the chain.
            self._stopped = True
            raise
        assert snapshot
        self.snapshot = snapshot
        return snapshot

    def refresh(self) -> Snapshot:
        """The head as it is now, to route the next epoch by; errors as for `commit`."""
        head = self._writer.head()
        again = any(
            snapshot.kind is Kind.CLAIM for snapshot in self._writer.since(self.snapshot, head)
        )
        if again or head.writer != self.id or head.generation != self.snapshot.generation:
            raise _superseded(self._writer.stream, self.snapshot, head)
        self.snapshot = head
        return head


class _Claim:
    """A claim draft that checks again for a living writer, if another run came first."""

    def __init__(self, draft: ClaimDraft, writer: StreamWriter, *, force: bool) -> None:
        self._draft = draft
        self._writer = writer
        self._force = force

    def on(self, head: Snapshot, since: Any, blobs: Any) -> Snapshot | None:
        if since and not self._force and head.writer != self._draft.run:
            self._writer.refuse_living(head)
        return self._draft.on(head, since, blobs)


def new_run() -> str:
    """A name for a run: when it began, and a random part."""
    return time.strftime("%Y%m%dT%H%M%SZ-", time.gmtime()) + uuid.uuid4().hex[:12]


def check_pins(head: Snapshot, pins: Mapping[str, Any] | None) -> None:
    """Refuse a stream table that differs from the settings that genesis fixed.

    A source is fixed by what it is, not by its path: it may be moved.
    """
    if pins is None:
        return
    identity = pins.get(INCARNATION)
    is_moved = identity is not None and identity == head.pins.get(INCARNATION)
    for name in sorted((pins.keys() | head.pins.keys()) - ({"source"} if is_moved else set())):
        if pins.get(name) != head.pins.get(name):
            raise UsageError(
                f"{name} of stream {head.stream} was {head.pins.get(name)!r} when it began and is "
                f"{pins.get(name)!r} now; it is fixed for the life of the stream",
                hint="restore the old value, or begin a new stream",
            )


def _superseded(stream: Stream, known: Snapshot, head: Snapshot) -> SluicegateError:
    if head.generation != known.generation:
        return StaleGeneration(f"the stream is at generation {head.generation}: {described(head)}")
    return SplitBrainCommit(f"run {head.writer} took over {stream.name}: {described(head)}")


def _deltas(stream: Stream, ref: Ref) -> set[Ref]:
    shards = manifest.read(stream.blobs, ref)
    return {each for refs in shards.values() for each in refs}
