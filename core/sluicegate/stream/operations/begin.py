"""Beginning a stream: a directory in the home, and the genesis snapshot with its fixed settings."""

from __future__ import annotations

from sluicegate import units
from sluicegate.config import NamedStream
from sluicegate.journal import Approval
from sluicegate.legacy.v1 import V1Checkpoint
from sluicegate.plan import Action, Plan
from sluicegate.positions import Positions
from sluicegate.sources.base import BATCH, is_query, refuse_outside, source_range
from sluicegate.storage import canonical_uri, joined_uri, open_storage, validate_name
from sluicegate.stream import home as homes
from sluicegate.stream.append import Signature
from sluicegate.stream.operations.import_v1 import content_from_v1
from sluicegate.stream.snapshot import Kind
from sluicegate.stream.spec import first_pins
from sluicegate.stream.stream import open_stream
from sluicegate.stream.writer import StreamWriter


def start_of(source: str, where: str) -> Positions:
    """The positions at the `earliest` or `latest` of a source, as numbers."""
    if is_query(source):
        # The query has a start of its own; here its batches are counted.
        return Positions({BATCH: {0: 0}})
    earliest, latest = source_range(source)
    return {"earliest": earliest, "latest": latest}[where]


def plan_begin(home: str, stream: NamedStream, positions: Positions) -> Plan:
    """The plan to begin a stream at positions; refuses those that its log does not hold."""
    name = stream.name
    _check(home, name)
    refuse_outside(stream.source, positions)
    actions = [Action("begin", f"stream {name}", "a chain with its first snapshot")]
    actions += [
        Action("start", f"{p.topic}[{p.partition}]", "the first event it reads", new=p.offset)
        for p in positions
    ]
    fixed = ("The settings in its table in sluicegate.toml are fixed for the life of the stream.",)
    return Plan(f"Begin the stream {name} in {home}", tuple(actions), fixed)


def begin(home: str, stream: NamedStream, positions: Positions, approval: Approval) -> None:
    """Begin a stream at positions."""
    signature = Signature(by=approval.by, reason=approval.reason)
    _writer(home, stream.name).genesis(positions, pins=first_pins(stream), signature=signature)


def plan_begin_from_v1(home: str, name: str, checkpoint: V1Checkpoint) -> Plan:
    """The plan to begin a stream with a v1 checkpoint."""
    _check(home, name)
    actions = [
        Action("begin", f"stream {name}", f"after sequence {checkpoint.sequence}"),
        Action(
            "keep", "operators", f"{units.counted(len(checkpoint.operators), 'state')}, unchanged"
        ),
    ]
    actions += [
        Action("start", f"{source}[0]", "the first event it reads", new=offset)
        for source, offset in sorted(checkpoint.sources.items())
    ]
    return Plan(f"Begin the stream {name} in {home} from a v1 checkpoint", tuple(actions))


def begin_from_v1(home: str, name: str, checkpoint: V1Checkpoint, approval: Approval) -> None:
    """Begin a stream with the content of a v1 checkpoint."""
    writer = _writer(home, name)
    content = content_from_v1(writer.stream, checkpoint)
    positions = content.pop("positions")
    del content["ancestry"]
    content["details"] = {"summary": f"from a v1 checkpoint at sequence {checkpoint.sequence}"}
    signature = Signature(by=approval.by, reason=approval.reason)
    snapshot = writer.genesis(positions, signature=signature, content=content)
    assert snapshot.kind is Kind.GENESIS


def _check(home: str, name: str) -> None:
    """Refuse an invalid name, a missing home, and a stream that has already begun."""
    validate_name(name, "stream")
    homes.open_home(home)
    StreamWriter(open_stream(_place(home, name), read_only=True)).refuse_begun()


def _writer(home: str, name: str) -> StreamWriter:
    _check(home, name)
    open_storage(_place(home, name), create=True)
    return StreamWriter(open_stream(_place(home, name), read_only=False))


def _place(home: str, name: str) -> str:
    return joined_uri(canonical_uri(home), name)
