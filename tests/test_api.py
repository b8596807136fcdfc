"""The public interface: every name of `__all__`, and the examples of its guide, run in order."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sluicegate as sg
from sluicegate.stream.target import GatedStream
from tests.formats.archive import opened
from tests.stream import streams

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide" / "python.md"
SPARK_SIDE = {"StreamJob", "starting_offsets", "commit_offsets"}


@pytest.mark.parametrize("name", sorted({*sg.__all__} - SPARK_SIDE))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(sg, name) is not None


def test_a_name_that_is_not_public_is_none() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Gate'"):
        sg.Gate  # noqa: B018


def test_every_public_name_is_in_a_guide() -> None:
    text = "".join(path.read_text() for path in (ROOT / "docs" / "guide").glob("*.md"))
    shown = {*re.findall(r"\b(?:sg|sluicegate)\.(\w+)", text)}
    helpers = {"Target", "Report", "Plan", "Entry", "Finding", "Position", "Scope", "Fence"}
    hooks = {"CommitHook", "CommitInfo", "CollectingHook"}
    assert {*sg.__all__} - shown - helpers - hooks - {"__version__"} == set()


def test_the_examples_of_the_guide(tmp_path: Path) -> None:
    opened("checkpoints").unpack("stateless", tmp_path / "orders")
    names: dict[str, object] = {}
    shown = io.StringIO()
    with contextlib.chdir(tmp_path), contextlib.redirect_stdout(shown):
        for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
            exec(compile(block, str(GUIDE), "exec"), names)
    printed = shown.getvalue()
    assert printed.startswith("spark-checkpoint\n")
    assert "Roll back to the end of batch" in printed
    assert "op-1" in printed
    assert "rewind orders[0] 42 → 32" in printed


def test_a_plan_that_no_longer_holds_is_refused(tmp_path: Path) -> None:
    opened("checkpoints").unpack("stateless", tmp_path / "orders")
    orders = sg.open(str(tmp_path / "orders" / "checkpoint"))
    newest = orders.inspect().document["last_batch"]
    plan = orders.plan(sg.Rollback(to=newest - 2))
    orders.apply(orders.plan(sg.Rollback(to=newest - 1)))
    with pytest.raises(sg.SluicegateError, match="changed since the plan was made"):
        orders.apply(plan)


def test_a_consumer_applies_each_message_once(tmp_path: Path) -> None:
    stream = streams.made(tmp_path)
    before = stream.chain.head().sequence
    found = sg.open(stream.uri)
    assert isinstance(found, GatedStream)
    for _ in range(2):
        with found.consumer(app="test") as consumer:
            transaction = consumer.begin(sg.Stamp("web-1", 0, 7))
            if transaction:
                transaction.put("alice", b"1")
                consumer.commit(transaction)
    assert stream.chain.head().sequence == before + 1


def test_opening_a_checkpoint_imports_nothing_of_streams(tmp_path: Path) -> None:
    opened("checkpoints").unpack("stateless", tmp_path / "orders")
    code = (
        "import sys, sluicegate as sg\n"
        "sg.open(sys.argv[1]).verify()\n"
        "parts = ('stream', 'state', 'dedup', 'offsets', 'job', 'producer')\n"
        "print([m for m in sys.modules if m.startswith('sluicegate.')"
        " and m.split('.')[1] in parts or m in ('pyspark', 'pandas', 'pyarrow', 'numpy')])\n"
    )
    place = str(tmp_path / "orders" / "checkpoint")
    done = subprocess.run(
        [sys.executable, "-c", code, place],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
