"""The committed records: per area one xz'd file of JSON lines, and what they were recorded with."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "records"
_META = "meta.json.xz"
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 1 << 25}]

Record = dict[str, Any]


def areas(below: Path = HERE) -> list[str]:
    """The recorded areas."""
    return sorted(path.name.removesuffix(".jsonl.xz") for path in below.glob("*.jsonl.xz"))


def load(area: str, below: Path = HERE) -> dict[str, Record]:
    """The records of an area by the names of their cases; each with the commit it is of."""
    path = below / f"{area}.jsonl.xz"
    if not path.exists():
        return {}
    header, *lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    texts = json.loads(header)["texts"]
    found = {}
    for line in lines:
        record = json.loads(line)
        found[record["name"]] = record | {"texts": texts}
    return found


def save(area: str, records: Iterable[Record], below: Path = HERE) -> int:
    """Write an area again and give its size; contents that several cases share are kept once."""
    texts: dict[str, str] = {}
    lines = []
    for record in sorted(records, key=lambda each: str(each["name"])):
        used = json.dumps(record["steps"])
        texts |= {short: text for short, text in record["texts"].items() if short in used}
        kept = {key: record[key] for key in ("name", "commit", "steps")}
        lines.append(json.dumps(kept, ensure_ascii=False, separators=(",", ":")))
    header = json.dumps({"texts": dict(sorted(texts.items()))}, ensure_ascii=False)
    data = "\n".join([header, *lines]) + "\n"
    packed = lzma.compress(data.encode(), format=lzma.FORMAT_XZ, filters=_FILTERS)
    below.mkdir(exist_ok=True)
    (below / f"{area}.jsonl.xz").write_bytes(packed)
    return len(packed)


def stable(below: Path = HERE) -> frozenset[str]:
    """The tokens that two recordings under different circumstances had in common."""
    return frozenset(_meta(below).get("stable", ()))


def save_stable(tokens: Iterable[str], below: Path = HERE) -> None:
    """Keep the tokens that are stable, beside those that are known already."""
    below.mkdir(exist_ok=True)
    text = json.dumps({"stable": sorted({*tokens, *stable(below)})})
    (below / _META).write_bytes(lzma.compress(text.encode(), filters=_FILTERS))


def _meta(below: Path) -> Mapping[str, Any]:
    path = below / _META
    if not path.exists():
        return {}
    found = json.loads(lzma.decompress(path.read_bytes()))
    assert isinstance(found, dict)
    return found
