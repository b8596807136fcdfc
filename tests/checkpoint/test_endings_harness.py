"""The harness that restarts real queries sees loss where rows are lost, and nowhere else.

One test, because each JVM takes many seconds and all queries can share it.
"""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from pathlib import Path

from tests.checkpoint.damage import Made, trap_a_delete_two
from tests.lab.endings import Ending, cases, copy_place, made, play_out


def rewound_by_hand(made: Made) -> None:
    """One committed batch more, which records three read files less."""
    last = made.last
    for log in ("offsets", "commits"):
        shutil.copy(made.checkpoint / log / str(last), made.checkpoint / log / str(last + 1))
    path = made.offsets(last + 1)
    *head, offset = path.read_text().split("\n")
    earlier = {name: value - 18 for name, value in json.loads(offset).items()}
    path.write_text("\n".join([*head, json.dumps(earlier)]))


def test_restarts_end_like_an_uninterrupted_run_unless_rows_were_lost(tmp_path: Path) -> None:
    version = metadata.version("pyspark")
    lab = made(version)
    healthy = [Ending(case, copy_place(lab / case, tmp_path / case)) for case in cases(version)]
    lossy, doubling = (
        Ending(case, copy_place(lab / case, tmp_path / "harmed" / case))
        for case in ("stateless-parquet", "stateless-python")
    )
    trap_a_delete_two(Made(lossy.place))
    rewound_by_hand(Made(doubling.place))

    *outcomes, lost, duplicated = play_out(version, [*healthy, lossy, doubling])

    results = dict(zip((ending.case for ending in healthy), outcomes, strict=True))
    assert {case: outcome for case, outcome in results.items() if not outcome.right} == {}
    assert all(outcome.first.batches and outcome.second.batches for outcome in outcomes)
    assert not lost.errors
    assert lost.missing
    assert not lost.extra
    assert not duplicated.errors
    assert duplicated.extra
    assert not duplicated.missing
