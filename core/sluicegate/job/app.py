"""The application that `sluicegate submit STREAM` runs, unless the stream has one of its own."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from sluicegate.errors import SluicegateError
from sluicegate.job.job import StreamJob
from sluicegate.spark.submit.run import OWN_ERROR, OWN_HINT


def main() -> int:
    """Run the job; the exit code is that of the error, which is printed on standard error."""
    try:
        spark = SparkSession.builder.getOrCreate()
        StreamJob.from_conf(spark).run()
    except SluicegateError as e:
        # After what Spark prints, so that `submit` finds it at the end.
        sys.stderr.write(f"{OWN_ERROR}{e.message}\n{OWN_HINT}{e.hint}\n")
        return e.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
