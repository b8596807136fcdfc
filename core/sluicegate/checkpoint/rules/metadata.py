"""The file `metadata`: the id of the query."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sluicegate.checkpoint.file_edits import drop_sums, put
from sluicegate.checkpoint.rules import layout
from sluicegate.checkpoint.rules.fixes import Case, Fix, Solution, repair_command
from sluicegate.checkpoint.view import METADATA, read_query_id
from sluicegate.errors import Corrupt, NotFound
from sluicegate.findings import Finding, LogPattern, Severity, Site, fixes, rule
from sluicegate.plan import Choice
from sluicegate.units import command

_WRITE_ID = (
    "Rewrite `metadata` with the original id, which older driver logs show as the query's id. "
    "With a new id, a sink that recognises repeated batches by query id writes them twice."
)

METADATA_MISSING = rule(
    "SG-METADATA-MISSING",
    Severity.ERROR,
    "the file `metadata` with the query id is missing",
    "Spark 4.2 and later refuse to start. 3.5 and 4.0 silently take a new query id, and a sink "
    "that recognises repeated batches by query id then writes them twice. Rewrite it with the "
    "original id.",
    LogPattern(
        _WRITE_ID,
        classes=("STREAMING_CHECKPOINT_MISSING_METADATA_FILE",),
    ),
)
METADATA_DAMAGED = rule(
    "SG-METADATA-DAMAGED",
    Severity.ERROR,
    "the file `metadata` cannot be read",
    'It should hold `{"id":"<uuid>"}`. Rewrite it with the original id, which the driver log '
    "shows as the query's id.",
    LogPattern(
        _WRITE_ID,
        texts=(r"Error reading stream metadata from (?P<checkpoint>\S{1,1024})/metadata",),
        family=LOG_FAMILY,
    ),
    LogPattern(
        _WRITE_ID,
        texts=(*JSON_CUT, r"MappingException"),
        sites=(Site.METADATA,),
        family=LOG_FAMILY,
    ),
)


def check_metadata(case: Case) -> Iterator[Finding]:
    """The query id must be there once anything has run."""
    look = case.look
    place = f"{look.storage.uri}/{METADATA}"
    try:
        read_query_id(look.storage)
    except NotFound:
        if look.last_batch is not None or look.last_commit is not None:
            yield METADATA_MISSING.at(place, repair=repair_command(look))
    except Corrupt as e:
        yield METADATA_DAMAGED.at(place, e.message, repair=repair_command(look))


@fixes(METADATA_MISSING, METADATA_DAMAGED)
def write_query_id(case: Case, _finding: Finding) -> Solution:
    """The file with the query id: the operator has to supply the id."""
    if case.query_id is not None:
        text = json.dumps({"id": case.query_id}, separators=(",", ":"))
        edits = (put(METADATA, text), *drop_sums(case.storage, METADATA))
        return Fix(f"write {METADATA}", f"The query's id is {case.query_id}.", edits)
    repair = command("checkpoint", "repair", case.storage.uri, "--query-id", "UUID")
    return (
        Choice(
            "",
            "set the original id of the query",
            repair,
            "nothing; the driver's log shows it as `id = …` where the query starts",
        ),
        Choice(
            "",
            "set a new id",
            repair,
            "sinks that recognise batches by query id and number (Delta) no longer do",
        ),
    )
