"""The Spark settings through which `submit` tells an application what it needs to know.

| setting | meaning |
|---|---|
| `spark.sluicegate.checkpoint` | the checkpoint that was checked; also lets the JVM be recognised |
| `spark.sluicegate.startingOffsets` | positions to start from, as Kafka's option takes them |
| `spark.sluicegate.offsetsStore` | the offset store that finished batches are committed to |
| `spark.sluicegate.consumer` | the consumer of that store whose positions these are |
| `spark.sluicegate.progress` | a pipe that takes one line of JSON per finished batch |
"""

from __future__ import annotations

PREFIX = "spark.sluicegate."
CHECKPOINT = PREFIX + "checkpoint"
STARTING_OFFSETS = PREFIX + "startingOffsets"
OFFSETS_STORE = PREFIX + "offsetsStore"
CONSUMER = PREFIX + "consumer"
PROGRESS = PREFIX + "progress"

Setting = tuple[str, str]
