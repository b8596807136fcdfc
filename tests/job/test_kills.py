"""The job in processes of its own, killed at the steps that matter most and asked to end.

Everything else that can kill it is tried in the lab: docs/results/exactly-once.md.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.job.test_epochs import traffic
from tests.job.truth import published
from tests.lab.exactly_once import Killed


def test_killed_three_times_and_asked_to_end(tmp_path: Path) -> None:
    place = Killed(tmp_path).begin()
    for partition in range(2):
        place.append(partition, traffic(partition, "p", partition, 0, 600))
    # Everything is computed, nothing is staged.
    place.killed_at("computed", 2)
    assert place.head.epoch == 1
    # Everything is durable but the snapshot itself: it must all go away.
    place.killed_at("ready", 1)
    assert place.head.epoch == 1
    # Committed, and not yet published: the next start does that.
    place.killed_at("committed", 1)
    assert place.head.epoch == 2
    assert len(list((place.sink / "data").iterdir())) == 1
    # Asked to end in the middle of an epoch, it finishes that.
    place.write_config(shards=4, sink="out", app=place.named.app)
    job = place.submit(fate="wait:computed:1")
    place.wait_until(place.told.exists, job)
    assert place.head.epoch == 2
    job.send_signal(signal.SIGTERM)
    place.ended(job, 143)
    assert place.head.epoch == 3
    place.check()
    assert len(published(place.sink, "data")) == place.head.counters["written"]
