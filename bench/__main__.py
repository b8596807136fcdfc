"""Run the benchmarks (all, or those named) and print a table; `build/bench.json` gets the rows.

With `--page FILE` first, the page of figures gets them, too.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import page
from harness import Row

HERE = Path(__file__).parent
RESULT = HERE.parent / "build" / "bench.json"
NOT_BENCHMARKS = ("__main__", "harness", "journey", "log_source", "page")


def main(names: list[str]) -> int:
    place = None
    if names[:1] == ["--page"]:
        place, names = Path(names[1]), names[2:]
    known = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in NOT_BENCHMARKS)
    if unknown := sorted(set(names) - set(known)):
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    rows: dict[str, list[Row]] = {}
    print(_line("name", "ours", "peer", "ratio", "bar", "ok"))
    for name, row in _measure(names or known):
        rows.setdefault(name, []).append(row)
        ours, peer = _amount(row.ours, row.unit), _amount(row.peer, row.unit)
        ok = "ok" if row.ok else "MISSED"
        print(_line(row.name, ours, peer, f"{row.ratio:.2f}", row.bar, ok), flush=True)
    RESULT.parent.mkdir(exist_ok=True)
    everything = [asdict(row) for some in rows.values() for row in some]
    RESULT.write_text(json.dumps(everything, indent=2) + "\n")
    if place:
        page.update(place, rows, _amount)
    # A slow machine must not fail a build; the table shows what was missed.
    return 0


def _measure(names: list[str]) -> Iterator[tuple[str, Row]]:
    for name in names:
        # What the one before left for the disk to do must not slow the next.
        os.sync()
        for row in importlib.import_module(name).rows():
            yield name, row


def _line(*cells: str) -> str:
    name, ours, peer, ratio, bar, ok = cells
    return f"{name:<52} {ours:>10} {peer:>10} {ratio:>8} {bar:>7}  {ok}"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 2**20:.1f} MiB" if value >= 2**20 else f"{value:,.0f} B"
    for name, length in (("s", 1.0), ("ms", 1e-3)):
        if value >= length:
            return f"{value / length:.2f} {name}"
    return f"{value / 1e-6:.1f} µs"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
