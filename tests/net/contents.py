"""What a file says, with volatile values masked: the same for two files that mean the same.

Sluicegate's own files are framed msgpack; the frame is decoded here on its own, after
core/sluicegate/FORMAT.md, so that a change of the product's decoder cannot hide a change of its
encoder. Parquet counts by its schema and rows, an archive by its members, a hidden checksum of
Hadoop by whether it fits its file, and anything else by its bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import msgpack

from tests.net.corpus import FRAME_HEADER, MAGIC, frame_sum, hadoop_crc
from tests.net.masks import Masks

_PREFIX = struct.Struct("<8s8sIQ")
_DEEPEST = 3


def meaning(path: Path, data: bytes, masks: Masks) -> str:
    """The masked content of a file as a text, which begins with what kind of content it is."""
    name = path.name
    if name.startswith(".") and name.endswith(".crc"):
        return _checksum(path, data)
    return _meaning(data, masks, 0)


def digest(text: str) -> str:
    """A short digest of a masked content."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _meaning(data: bytes, masks: Masks, depth: int) -> str:
    if data.startswith(MAGIC):
        return _framed(data, masks, depth)
    if data[:4] == b"PAR1" and data[-4:] == b"PAR1":
        return _parquet(data, masks)
    if data[:4] == b"PK\x03\x04" and depth < _DEEPEST:
        return _archive(data, masks, depth)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"binary {hashlib.sha256(data).hexdigest()}"
    if "\0" in text:
        return f"binary {hashlib.sha256(data).hexdigest()}"
    return _written(text, masks)


def _checksum(path: Path, data: bytes) -> str:
    checked = path.with_name(path.name[1:-4])
    if not checked.is_file():
        return "checksum of nothing"
    return "checksum fits" if hadoop_crc(checked.read_bytes()) == data else "checksum does not fit"


def _framed(data: bytes, masks: Masks, depth: int) -> str:
    """A frame: kind, version, whether its checksums fit, and the value in it."""
    if len(data) < FRAME_HEADER:
        return f"frame cut after {len(data)} bytes"
    _, kind, version, length = _PREFIX.unpack_from(data)
    crc_fits = zlib.crc32(data[:28]) == struct.unpack_from("<I", data, 28)[0]
    body = data[FRAME_HEADER:]
    sound = crc_fits and len(body) == length and frame_sum(data) == data[32:FRAME_HEADER]
    head = f"frame {kind.rstrip(bytes(1)).decode('ascii', 'replace')} {version}"
    if not sound:
        return f"{head} damaged"
    value = msgpack.unpackb(body, raw=False, strict_map_key=False)
    return f"{head} {_json(masks.document(_opened(value, masks, depth)))}"


def _opened(value: Any, masks: Masks, depth: int) -> Any:
    """A value in which bytes that are files themselves are opened."""
    match value:
        case bytes() if depth < _DEEPEST and value.startswith((MAGIC, b"PAR1")):
            return _meaning(value, masks, depth + 1)
        case dict():
            return {key: _opened(item, masks, depth) for key, item in value.items()}
        case list():
            return [_opened(item, masks, depth) for item in value]
    return value


def _parquet(data: bytes, masks: Masks) -> str:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(data))
    except (OSError, ValueError):
        return f"parquet damaged {hashlib.sha256(data).hexdigest()}"
    kept = {
        key.decode(): value.decode("utf-8", "replace")
        for key, value in (table.schema.metadata or {}).items()
    }
    schema = [f"{column.name}: {column.type}" for column in table.schema]
    rows = masks.document(table.to_pylist())
    return f"parquet {_json([schema, masks.document(kept), rows])}"


def _archive(data: bytes, masks: Masks, depth: int) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            inner = {
                masks.text(info.filename): digest(_meaning(packed.read(info), masks, depth + 1))
                for info in packed.infolist()
            }
    except (zipfile.BadZipFile, OSError, ValueError, zlib.error):
        return f"archive damaged {hashlib.sha256(data).hexdigest()}"
    return f"archive {_json(inner)}"


def _written(text: str, masks: Masks) -> str:
    """A text; where it is JSON, whole or line by line, its fields are masked by name, too."""
    try:
        return f"json {_json(masks.document(json.loads(text)))}"
    except (ValueError, RecursionError):
        pass
    return "text " + "\n".join(_line(line, masks) for line in masks.text(text).split("\n"))


def _line(line: str, masks: Masks) -> str:
    if not line.startswith("{"):
        return line
    try:
        return json.dumps(masks.document(json.loads(line)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return line


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
