"""The metadata of stateful operators (Spark 4.0 and later)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sluicegate.checkpoint.format.log import integer, list_log, parse_object, read_lines
from sluicegate.errors import Corrupt
from sluicegate.storage import Storage

NEWEST_VERSION = 2


@dataclass(frozen=True, slots=True)
class Store:
    """One state store of an operator; joins and transformWithState have several."""

    name: str
    partitions: int
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator, by its metadata file; `name` is None where Spark wrote none (3.5)."""

    id: int
    name: str | None
    stores: tuple[Store, ...]
    metadata_version: int | None = None


def read_operator(storage: Storage, operator: int) -> Operator:
    """The description of an operator; the newest version 2 metadata wins over version 1."""
    keys = list(_metadata_files(storage, operator))
    if not keys:
        return Operator(operator, None, ())
    key = keys[-1]
    version, lines = read_lines(storage, key, NEWEST_VERSION)
    place = f"{storage.uri}/{key}"
    fields = parse_object(lines[0] if lines else "", place)
    info = fields.get("operatorInfo")
    stores = fields.get("stateStoreInfo")
    if not isinstance(info, dict) or not isinstance(stores, list):
        raise Corrupt(f"{place}: operatorInfo or stateStoreInfo is missing", place=place)
    return Operator(
        operator,
        str(info.get("operatorName")),
        tuple(_store(each, place) for each in stores),
        version,
    )


def _metadata_files(storage: Storage, operator: int) -> Iterator[str]:
    """Oldest first."""
    base = f"{STATE}/{operator}/_metadata"
    if storage.stat(f"{base}/metadata") is not None:
        yield f"{base}/metadata"
    for batch in list_log(storage, f"{base}/v2").batches:
        yield f"{base}/v2/{batch}"


def _store(fields: Any, place: str) -> Store:
    if not isinstance(fields, dict):
        raise Corrupt(f"{place}: a store is not an object", place=place)
    paths = fields.get("stateSchemaFilePaths") or []
    if not isinstance(paths, list):
        raise Corrupt(f"{place}: stateSchemaFilePaths is not a list", place=place)
    return Store(
        str(fields.get("storeName")),
        integer(fields, "numPartitions", place),
        tuple(str(path) for path in paths),
    )


STATE = "state"
