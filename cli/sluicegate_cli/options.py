"""Arguments and options that several commands share, with one wording."""

from __future__ import annotations

from typing import Annotated

import typer

from sluicegate.target import TargetKind

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
