"""The bench runner itself; the figures are for people, not for tests."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOT_BENCHMARKS = {"__main__", "harness", "journey", "log_source", "page"}


@pytest.fixture(autouse=True)
def bench_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


def test_ours_and_peer_are_measured_in_turns() -> None:
    from harness import Bar, compare

    order: list[str] = []
    row = compare(
        "x", lambda: order.append("o"), lambda: order.append("p"), Bar("time at most", 1e9), 3
    )
    assert "".join(order) == "op" * 4, "one warm-up, then in turns"
    assert row.ok
    assert row.ratio == row.ours / row.peer


@pytest.mark.parametrize(
    ("kind", "limit", "ratio", "ok"),
    [
        ("time at most", 3, 2.0, True),
        ("time at most", 1.5, 2.0, False),
        ("rate at least", 0.4, 0.5, True),
        ("rate at least", 0.6, 0.5, False),
    ],
)
def test_bars(kind: str, limit: float, ratio: float, ok: bool) -> None:
    from harness import Bar

    bar = Bar(kind, limit)  # type: ignore[arg-type]
    assert bar.ratio(ours=2.0, peer=1.0) == ratio
    assert bar.met(ratio) is ok


def test_it_prints_a_table_and_writes_the_same_rows(tmp_path: Path) -> None:
    page = tmp_path / "bench.md"
    page.write_text("# Old\n\n## other\n\nstays\n\n## primitives\n\ngoes\n")
    result = subprocess.run(
        [sys.executable, "bench", "--page", str(page), "primitives"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["name", "ours", "peer", "ratio", "bar", "ok"]
    rows = json.loads((ROOT / "build" / "bench.json").read_text())
    assert [row["name"] for row in rows] == [line[:52].strip() for line in lines]
    assert set(rows[0]) == {"name", "ours", "peer", "ratio", "bar", "ok", "unit"}
    text = page.read_text()
    assert text.startswith("# Benchmarks\n")
    assert "## other\n\nstays\n\n## primitives\n" in text
    assert "goes" not in text
    assert all(f"| {row['name']} | " in text for row in rows)


def test_the_page_has_every_benchmark() -> None:
    known = {path.stem for path in (ROOT / "bench").glob("*.py")} - NOT_BENCHMARKS
    found = re.findall(
        r"^## (\w+)$", (ROOT / "docs" / "results" / "bench.md").read_text(), re.MULTILINE
    )
    assert found == sorted(known)


def test_an_unknown_name_lists_the_known_ones() -> None:
    command = [sys.executable, "bench", "nope"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    known = {path.stem for path in (ROOT / "bench").glob("*.py")} - NOT_BENCHMARKS
    assert {"chain", "dedup", "shards"} <= known
    assert f"there are: {', '.join(sorted(known))}\n" in result.stderr
