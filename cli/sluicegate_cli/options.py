"""Arguments and options that several commands share, with one wording."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.target import TargetKind

TargetArgument = Annotated[
    str | None,
    typer.Argument(metavar="TARGET", help="name or path; optional if there is only one target"),
]
AsOption = Annotated[
    TargetKind | None, typer.Option("--as", help="kind of the target; detected by default")
]
SinkOption = Annotated[
    str | None,
    typer.Option(
        "--sink", metavar="DIR", help="directory of its file sink; as configured by default"
    ),
]
UncheckedOption = Annotated[
    bool,
    typer.Option("--unchecked", help="do not ask the source whether it holds what is read again"),
]
ConsumerOption = Annotated[
    str | None,
    typer.Option(
        "--consumer", metavar="NAME", help="consumer of the store; optional if there is only one"
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,1,2]", help="only this topic or its partitions"),
]
AllTopicsOption = Annotated[bool, typer.Option("--all-topics", help="every topic")]
ForceOption = Annotated[bool, typer.Option("--force", help="take over from a running writer")]
WriterGoneOption = Annotated[
    bool,
    typer.Option(
        "--writer-gone", help="confirm that the job has stopped although files changed recently"
    ),
]
IntoOption = Annotated[
    str | None,
    typer.Option(
        "--into", metavar="NEW_DIR", help="change a copy there; leave the original unchanged"
    ),
]
ShardsArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET", help="a stream or an assignment file; optional if there is only one"
    ),
]
OwnerArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="a stream or an assignment file")
]
NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help="names of nodes")]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        metavar="events|keys|bytes|FILE", help="weights of the shards: from their state, or a file"
    ),
]
MaxMovesOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="move no more shards than this")
]
IdempotentOption = Annotated[
    bool, typer.Option("--idempotent", help="succeed if there is nothing to do")
]
OutputOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="write a new file; leave the target unchanged")
]
