"""The gated job with a fate: `LAB_FATE=kill:committed:2` dies when it commits for the second time.

`wait:computed:1` tells that it is there in the file $LAB_TOLD, and waits for a moment. Started by
`sluicegate submit`, as the application of a stream.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from sluicegate.errors import SluicegateError
from sluicegate.job.job import StreamJob
from sluicegate.spark.submit.run import OWN_ERROR

_MOMENT = 3.0


class Fate:
    """What happens at a step, counted from when it is reached first."""

    def __init__(self, text: str) -> None:
        self._what, self._where, number = text.split(":")
        self._left = int(number)

    def __call__(self, step: str) -> None:
        self._left -= step == self._where
        if step != self._where or self._left != 0:
            return
        if self._what == "kill":
            # The JVM first: it is the parent, and would clean up after its child.
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        Path(os.environ["LAB_TOLD"]).touch()
        time.sleep(_MOMENT)


def main() -> int:
    """Run the job as the usual application does."""
    spark = SparkSession.builder.getOrCreate()
    try:
        StreamJob.from_conf(spark).run(step=Fate(os.environ.get("LAB_FATE", "kill:never:1")))
    except SluicegateError as e:
        sys.stderr.write(f"{OWN_ERROR}{e.message}\n")
        return e.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
