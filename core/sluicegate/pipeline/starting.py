"""Where an application that `submit` has started begins to read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sluicegate.errors import NotFound
from sluicegate.positions import Position, Positions, from_spark, to_spark
from sluicegate.spark.submit import keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EARLIEST = -2


def starting_offsets(
    spark: SparkSession,
    *,
    partitions: Mapping[str, int] | None = None,
    new_consumer: str = "earliest",
) -> str:
    """The value for Kafka's option `startingOffsets`: the positions that `submit` was given.

    Kafka's source wants every partition of every topic it reads, and no others. `partitions`, a
    number of partitions by topic, leaves other topics out and lets partitions that were added
    since begin at their start. A consumer without positions begins at `new_consumer`. An
    application that `submit` did not start with `--offsets-store` gets `NotFound`.
    """
    text = spark.conf.get(keys.STARTING_OFFSETS, None)
    if text is None and spark.conf.get(keys.CONSUMER, None) is not None:
        return new_consumer
    if text is None:
        raise NotFound(
            f"no starting offsets were given: {keys.STARTING_OFFSETS} is not set",
            hint="start the application with: sluicegate submit --app APP --offsets-store DIR "
            "--consumer NAME",
        )
    return text if partitions is None else _completed(from_spark(json.loads(text)), partitions)


def _completed(known: Positions, partitions: Mapping[str, int]) -> str:
    kept = Positions.of(
        Position(topic, number, offset)
        for topic, count in partitions.items()
        for number in range(count)
        if (offset := known.get(topic, number)) is not None
    )
    value = to_spark(kept)
    for topic, count in partitions.items():
        of_topic = value.setdefault(topic, {})
        for number in range(count):
            of_topic.setdefault(str(number), _EARLIEST)
    return json.dumps(value, separators=(",", ":"))
