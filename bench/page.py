"""The page of figures: a section for each benchmark, rewritten when it is measured."""

from __future__ import annotations

import importlib
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness import Row

_INTRODUCTION = """# Benchmarks

Sluicegate and a peer, measured in turns in one run, so that a slow machine is slow for both. The
ratio counts; the bar is the limit that it must keep. `make bench` measures everything and writes
this page, `make bench BENCH=dedup` one section of it.
"""
_HEAD = "| compared | ours | peer | ratio | bar | met |\n|---|--:|--:|--:|--:|---|"


def update(path: Path, measured: Mapping[str, Sequence[Row]], amount: Callable[..., str]) -> None:
    """Put what was measured into the page; other sections stay as they are."""
    before = path.read_text() if path.exists() else ""
    _, *parts = re.split(r"^## ", before, flags=re.MULTILINE)
    sections = {part.split("\n", 1)[0]: part for part in parts}
    for name, rows in measured.items():
        sections[name] = _section(name, rows, amount)
    body = "\n".join(f"## {sections[name].strip()}\n" for name in sorted(sections))
    path.write_text(f"{_INTRODUCTION}\n{body}")


def _section(name: str, rows: Sequence[Row], amount: Callable[..., str]) -> str:
    about = (importlib.import_module(name).__doc__ or "").strip()
    lines = [
        f"| {row.name} | {amount(row.ours, row.unit)} | {amount(row.peer, row.unit)} "
        f"| {row.ratio:.2f} | {row.bar} | {'yes' if row.ok else 'no'} |"
        for row in rows
    ]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
    return "\n".join([name, "", about, "", _HEAD, *lines, "", f"Measured on {machine}."])
