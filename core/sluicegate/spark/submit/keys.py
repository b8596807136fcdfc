"""The Spark settings through which `submit` tells an application what it needs to know.

| setting | meaning |
|---|---|
| `spark.sluicegate.checkpoint` | the checkpoint that was checked; also lets the JVM be recognised |
| `spark.sluicegate.startingOffsets` | positions to start from, as Kafka's option takes them |
| `spark.sluicegate.offsetsStore` | the offset store that finished batches are committed to |
| `spark.sluicegate.consumer` | the consumer of that store whose positions these are |
| `spark.sluicegate.progress` | a pipe that takes one line of JSON per finished batch |
| `spark.sluicegate.stream` | the gated stream that the job runs |
| `spark.sluicegate.config` | the configuration that describes it |
| `spark.sluicegate.home` | the home that holds its chain |
| `spark.sluicegate.availableNow` | `true`: end when all that is there now is read |
| `spark.sluicegate.interval` | seconds from one epoch to the next, at least |
| `spark.sluicegate.force` | `true`: take over from a job that runs |
"""

from __future__ import annotations

PREFIX = "spark.sluicegate."
CHECKPOINT = PREFIX + "checkpoint"
STARTING_OFFSETS = PREFIX + "startingOffsets"
OFFSETS_STORE = PREFIX + "offsetsStore"
CONSUMER = PREFIX + "consumer"
PROGRESS = PREFIX + "progress"
STREAM = PREFIX + "stream"
CONFIG = PREFIX + "config"
HOME = PREFIX + "home"
AVAILABLE_NOW = PREFIX + "availableNow"
INTERVAL = PREFIX + "interval"
FORCE = PREFIX + "force"

Setting = tuple[str, str]
