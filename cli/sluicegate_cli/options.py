"""Arguments and options that several commands share, with one wording."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.detection import TargetKind
from sluicegate.errors import UsageError

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


def refuse_option(option: str, value: object, what: str) -> None:
    """Refuse an option that has no meaning for this kind of target."""
    if value is not None:
        raise UsageError(f"{option} is for {what}, which this target is not")
