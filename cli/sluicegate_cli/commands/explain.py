"""`sluicegate explain`."""

from __future__ import annotations

import sys
from typing import Annotated, TypedDict

import typer

from sluicegate.report import Report, Table, document
from sluicegate.spark.explain import STANDARD_INPUT, Explanation, explain, opened, read_lines
from sluicegate_cli.output import next_command
from sluicegate_cli.session import Session

EXAMPLES = (
    ("explain driver.log", "why did the job die?"),
    ("explain driver.log.1.gz --json", "a rotated log, for a program"),
    ("explain -", "paste the error, then press Ctrl-D"),
)
DOCUMENTS = ("sluicegate.explain",)
FINDINGS = ("SG-KAFKA-", "SG-QUERY-", "SG-STORAGE-", "SG-RUNTIME-", "SG-INPUT-", "SG-WRITERS-")


class ExplanationDocument(TypedDict):
    """One cause."""

    cause: str
    code: str
    severity: str  # `error`, `warning` or `note`
    certain: bool  # false: the words alone do not distinguish it from `also`
    also: list[str]  # codes of other causes that the same text can mean
    meaning: str
    advice: str
    command: str  # the next one to type
    evidence: str  # the text in line `line`
    line: int
    first_line: int
    last_line: int
    count: int  # how many exceptions in these lines have this cause
    facts: dict[str, str]


@document("sluicegate.explain", version=1)
class ExplainDocument(TypedDict):
    """The causes that a driver log shows, the root cause first."""

    log: str
    explanations: list[ExplanationDocument]


def run(
    ctx: typer.Context,
    log: Annotated[str, typer.Argument(metavar="LOG", help="a file, or - for standard input")],
) -> None:
    """Find the cause of an error in a driver log, and the next command to run.

    LOG may be a complete log, a stack trace or a message, with any text around it. Codes are those
    of `checkpoint verify`, and the ones below, which only a log can reveal. The root cause comes
    first. Exit code 10 if nothing is recognised.
    """
    session = Session.of(ctx)
    name = "standard input" if log == STANDARD_INPUT else log
    if log == STANDARD_INPUT and sys.stdin.isatty():
        session.sink.note("Paste the log, then press Ctrl-D.")
    with opened(log) as stream, session.sink.progress("reading the log") as on_progress:
        found = explain(read_lines(stream, name, on_progress), name)
    session.sink.show(_view(name, found))


def _view(name: str, found: list[Explanation]) -> Report:
    document: ExplainDocument = {
        "log": name,
        "explanations": [_document(each) for each in found],
    }
    return Report(
        schema="sluicegate.explain",
        document=document,
        tables=[
            Table(
                ("field", "value"),
                _rows(each),
                title=f"cause {number} of {len(found)}" if len(found) > 1 else "",
                header=False,
            )
            for number, each in enumerate(found, start=1)
        ],
        # Again below the tables, where a long command is not folded and can be copied.
        lines=[f"next: {command}" for command in dict.fromkeys(_next(each) for each in found)],
    )


def _next(each: Explanation) -> str:
    return next_command(each.command, each.code)


def _rows(each: Explanation) -> list[tuple[str, str]]:
    times = f", {each.count} times in lines {each.first_line} to {each.last_line}"
    also = "; ".join(f"{rule.code}: {rule.title}" for rule in each.also)
    rows = [
        ("cause", each.title),
        ("code", each.code),
        ("seen", f"line {each.line}{times if each.count > 1 else ''}"),
        ("text", each.evidence),
        *each.facts.items(),
        ("meaning", each.rule.explanation),
        ("may also be", also),
        ("what to do", each.advice),
        ("next", _next(each)),
    ]
    return [(name, value) for name, value in rows if value]


def _document(each: Explanation) -> ExplanationDocument:
    return {
        "cause": each.title,
        "code": each.code,
        "severity": each.rule.severity.value,
        "certain": each.certain,
        "also": [rule.code for rule in each.also],
        "meaning": each.rule.explanation,
        "advice": each.advice,
        "command": _next(each),
        "evidence": each.evidence,
        "line": each.line,
        "first_line": each.first_line,
        "last_line": each.last_line,
        "count": each.count,
        "facts": dict(each.facts),
    }
