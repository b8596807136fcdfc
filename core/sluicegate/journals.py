"""The journal of a target, whatever its kind."""

from __future__ import annotations

from sluicegate.detection import TargetKind
from sluicegate.errors import UnsupportedFormat
from sluicegate.journal import Journal
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.journal import StoreJournal
from sluicegate.offsets.legacy import refuse_reference
from sluicegate.storage import canonical_uri, open_storage
from sluicegate.target import Target


def open_journal(
    target: Target,
    *,
    consumer: str | None = None,
    sink: str | None = None,
    writer_gone: bool = False,
    read_only: bool,
) -> Journal:
    """The journal of a target; of one consumer, where it has several; with a sink, if it is one."""
    if target.kind is TargetKind.OFFSET_STORE:
        refuse_reference(open_storage(target.uri, read_only=True))
        store = LockFileOffsetStore.open(canonical_uri(target.uri), read_only=read_only)
        return StoreJournal(store, name=target.configured_name, consumer=consumer)
    if target.kind is TargetKind.SPARK_CHECKPOINT:
        from sluicegate.checkpoint.journal import CheckpointJournal

        return CheckpointJournal(
            open_storage(canonical_uri(target.uri), read_only=read_only),
            sink=open_storage(canonical_uri(sink), read_only=read_only) if sink else None,
            name=target.configured_name,
            writer_gone=writer_gone,
        )
    if target.kind is TargetKind.STREAM:
        from sluicegate.stream.journal import StreamJournal
        from sluicegate.stream.stream import open_stream

        stream = open_stream(canonical_uri(target.uri), read_only=read_only)
        return StreamJournal(stream, name=target.configured_name)
    if target.kind is TargetKind.ASSIGNMENT_FILE:
        from sluicegate.shards.journal import FileJournal

        return FileJournal(target.uri, read_only=read_only)
    raise UnsupportedFormat(
        f"{target.uri} is a {target.kind.value} ({target.why}), of which this release keeps no "
        "journal",
        hint="name a stream, an offset store, a Spark checkpoint or an assignment file",
        place=target.uri,
    )
