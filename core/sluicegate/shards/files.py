"""Assignments in plain files of other systems: JSON, CSV, and Kafka's reassignment JSON.

    {"0": "a", "1": "b"}                      shard → node; null for an unowned shard
    ["a", "b"]                                the same as a list
    {"nodes": {"a": 2, "b": 1}, "owners": …}  with capacities; owners in one of the forms above
    shard,node                                CSV, with or without this header
    {"version": 1, "partitions": […]}         Kafka: see `kafka`

A file is written in the form in which it was read.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluicegate.errors import UsageError
from sluicegate.shards import kafka
from sluicegate.shards.assignment import Assignment, AssignmentInvalid, from_names
from sluicegate.shards.describe import shard_label
from sluicegate.shards.planner import RebalancePlan
from sluicegate.shards.weights import shard_number

VERSION = "assignment_version"
_HEADER = ["shard", "node"]


@dataclass(frozen=True, slots=True)
class AssignmentFile:
    """The content of a file; `form` is its format, `raw` the parsed document.

    `version` is the assignment's, if the file has one.
    """

    form: str
    assignment: Assignment
    raw: Any
    version: int | None = None

    def label(self, shard: int) -> str:
        """The label of a shard in the file."""
        return kafka.label(self.raw, shard) if self.form == "kafka" else shard_label(shard)

    def cost(self, after: Assignment, shard: int) -> str:
        """The cost of moving a shard, for the system that uses the file."""
        return kafka.cost(self.raw, after, shard) if self.form == "kafka" else ""

    def refined(self, plan: RebalancePlan) -> RebalancePlan:
        """An equally good plan that costs the system less, if there is one."""
        return kafka.with_few_copies(self.raw, plan) if self.form == "kafka" else plan

    def consequences(self, plan: RebalancePlan) -> list[str]:
        """The consequences of a plan for the system that uses the file."""
        if self.form == "kafka":
            return kafka.consequences(self.raw, plan)
        if not self.keeps_capacities and any(size != 1 for size in plan.after.nodes.values()):
            return ["The file cannot hold capacities: set them again the next time."]
        return []

    @property
    def keeps_capacities(self) -> bool:
        """Whether the format can hold capacities, and nodes without shards."""
        return self.form == "document"

    def with_assignment(self, after: Assignment) -> str:
        """The text of the file with another assignment."""
        owners = after.owner_names()
        if self.form == "kafka":
            return kafka.rendered(kafka.reassigned(self.raw, after))
        if self.form == "csv":
            lines = [_HEADER] if self.raw else []
            rows = [[str(shard), name or ""] for shard, name in enumerate(owners)]
            return "".join(f"{_csv_line(row)}\n" for row in [*lines, *rows])
        if self.form == "document":
            version = {} if self.version is None else {VERSION: self.version + 1}
            listed = _like(self.raw["owners"], owners)
            return _json({**self.raw, **version, "nodes": dict(after.nodes), "owners": listed})
        return _json(_like(self.raw, owners))


def parse(text: str, place: str) -> AssignmentFile:
    """The assignment in a text of any of these forms, or `AssignmentInvalid`."""
    try:
        if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
            return _from_json(json.loads(text.lstrip("\ufeff"), object_pairs_hook=_once))
        return _from_csv(text)
    except (ValueError, RecursionError) as e:
        raise AssignmentInvalid(f"{place} is not an assignment: {e}", place=place) from e
    except UsageError as e:
        raise AssignmentInvalid(f"{place}: {e.message}", hint=e.hint, place=place) from e


def _from_json(found: Any) -> AssignmentFile:
    match found:
        case {"partitions": list()}:
            return AssignmentFile("kafka", kafka.assignment_of(found), found)
        case {"owners": dict() | list() as owners, "nodes": dict() as nodes}:
            version = found.get(VERSION)
            if version is not None and (type(version) is not int or version < 0):
                raise ValueError(f"{VERSION} is {version!r:.40}")
            made = from_names(_owners(owners), nodes, version or 0)
            return AssignmentFile("document", made, found, version)
        case dict() | list():
            return AssignmentFile("map", from_names(_owners(found)), found)
    raise ValueError("it is neither a map nor a list")


def _owners(found: Mapping[str, Any] | list[Any]) -> list[str | None]:
    """The name of each shard's node, of all shards from 0."""
    pairs = enumerate(found) if isinstance(found, list) else found.items()
    named: dict[int, str | None] = {}
    for name, node in pairs:
        shard = shard_number(str(name))
        if shard is None:
            raise ValueError(f"{name!r:.40} is not the number of a shard")
        if not (node is None or isinstance(node, str)):
            raise ValueError(f"shard {shard} belongs to {node!r:.40}, which is not a name")
        named[shard] = node
    return _complete(named)


def _complete(named: Mapping[int, str | None]) -> list[str | None]:
    if not named:
        raise ValueError("it has no shards")
    missing = next((shard for shard in range(len(named)) if shard not in named), None)
    if missing is not None:
        raise ValueError(f"shard {missing} is missing, but shard {max(named)} exists")
    return [named[shard] for shard in range(len(named))]


def _from_csv(text: str) -> AssignmentFile:
    rows = [row for row in csv.reader(io.StringIO(text.lstrip("\ufeff"))) if row]
    header = bool(rows) and [cell.strip().lower() for cell in rows[0]] == _HEADER
    named: dict[int, str | None] = {}
    for row in rows[1:] if header else rows:
        shard = shard_number(row[0])
        if len(row) != 2 or shard is None or shard in named:
            raise ValueError(f"{','.join(row)[:60]!r} is not shard,node")
        named[shard] = row[1].strip() or None
    return AssignmentFile("csv", from_names(_complete(named)), header)


def _like(raw: Any, owners: list[str | None]) -> Any:
    """The owners as a list or a map, like `raw`."""
    if isinstance(raw, list):
        return owners
    return {str(shard): name for shard, name in enumerate(owners)}


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _csv_line(row: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(row)
    return out.getvalue()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found
