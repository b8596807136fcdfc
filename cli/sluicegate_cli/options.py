"""Arguments and options that several commands share, with one wording."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.errors import UsageError
from sluicegate.target import Target, TargetKind

TargetArgument = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="name or path; may be left out if only one")
]
AsOption = Annotated[
    TargetKind | None, typer.Option("--as", help="what the target is, instead of detecting it")
]
SinkOption = Annotated[
    str | None,
    typer.Option("--sink", metavar="DIR", help="its file sink's directory; else as configured"),
]
ConsumerOption = Annotated[
    str | None,
    typer.Option(
        "--consumer", metavar="NAME", help="consumer of the store; may be left out if one"
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,1,2]", help="only this topic or its partitions"),
]
AllTopicsOption = Annotated[bool, typer.Option("--all-topics", help="every topic")]
ForceOption = Annotated[bool, typer.Option("--force", help="overtake a writer that still runs")]
WriterGoneOption = Annotated[
    bool, typer.Option("--writer-gone", help="the job has ended, though files are young")
]
IntoOption = Annotated[
    str | None,
    typer.Option("--into", metavar="NEW_DIR", help="change a copy there; leave this one alone"),
]
ShardsArgument = Annotated[
    str | None,
    typer.Argument(metavar="TARGET", help="a stream or an assignment file; may be left out if one"),
]
OwnerArgument = Annotated[
    str, typer.Argument(metavar="TARGET", help="a stream or an assignment file")
]
NodesArgument = Annotated[list[str], typer.Argument(metavar="NODE...", help="names of nodes")]
WeightsOption = Annotated[
    str | None,
    typer.Option(metavar="events|keys|bytes|FILE", help="what shards weigh: by state, or a file"),
]
MaxMovesOption = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="move no more shards than this")
]
IdempotentOption = Annotated[
    bool, typer.Option("--idempotent", help="nothing to do, if it is so already")
]
OutputOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="write a new file; leave the target alone")
]

_ONLY_FOR = {
    "--snapshot": "gated streams",
    "--read-data-subset": "gated streams",
    "--max-duration": "gated streams",
    "--consumer": "offset stores",
    "--batch": "Spark checkpoints",
    "--sink": "Spark checkpoints",
    "--into": "Spark checkpoints",
    "--offsets": "Spark checkpoints",
    "--query-id": "Spark checkpoints",
}


def refuse_options(target: Target, **given: object) -> None:
    """Refuse options that have no meaning for this kind of target."""
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is not None and option not in target.accepts:
            raise UsageError(f"{option} is for {_ONLY_FOR[option]}, which this target is not")
