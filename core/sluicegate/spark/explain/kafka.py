"""Causes between the offsets of a checkpoint and Kafka.

The texts are those of Spark's Kafka source (error classes since 4.0) and of Kafka's client. If
several patterns match one line, the first is taken: order matters.
"""

from __future__ import annotations

from sluicegate.findings import LogPattern, Severity, rule

_FAMILY = "kafka"
_SHOW = "offsets show {checkpoint}"
_TOPIC_PARTITION = r"(?P<topic_partition>[\w.-]{1,249}-\d{1,9})"
_CHANGED = (
    rf"Partition {_TOPIC_PARTITION}(?:'s)? offset was changed from "
    r"(?P<checkpoint_offset>\d{1,19}) to (?P<kafka_offset>\d{1,19})"
)
_SEE_FIRST = (
    "Do not just set failOnDataLoss=false: first find out how much is missing and whether another "
    "copy exists. `sluicegate offsets reset` then moves the positions to the records Kafka has."
)
_ASK_BROKERS = "Check that the brokers run and can be reached from the driver and the executors."

OFFSETS_BACK = rule(
    "SG-KAFKA-OFFSETS-BACK",
    Severity.ERROR,
    "Kafka's offsets are behind those of the checkpoint",
    "The topic was deleted and recreated, a cluster was restored, or the job was pointed to "
    "another cluster: the records after that point are not the ones of the checkpoint.",
    LogPattern(
        "Find out why before anything is reset. If the topic was recreated, move the checkpoint "
        "to its new offsets with `sluicegate offsets reset`.",
        _SHOW,
        classes=(
            "PARTITION_OFFSET_CHANGED",
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
        ),
        texts=(_CHANGED,),
        family=_FAMILY,
    ),
)
PARTITIONS = rule(
    "SG-KAFKA-PARTITIONS-GONE",
    Severity.ERROR,
    "topics or partitions that the checkpoint names are not in Kafka",
    "The topic was deleted or recreated with fewer partitions, the job reads another cluster, or "
    "it is not allowed to see them.",
    LogPattern(
        "Check that the job reads the right cluster and topic. If the partitions are gone for "
        "good, remove them from the offsets with `sluicegate offsets reset`.",
        _SHOW,
        classes=(
            "PARTITIONS_DELETED",
            "PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT",
            "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
            "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW",
        ),
        texts=(
            r"Cannot find (?:earliest|initial) offsets (?:of|for)",
            r"are gone\. (?:Some data may have been missed|Kafka option)",
            r"partitions in Kafka topic\(s\) have been lost",
            r"UnknownTopicOrPartitionException",
        ),
        family=_FAMILY,
    ),
)
START_OFFSETS = rule(
    "SG-KAFKA-START-OFFSETS",
    Severity.ERROR,
    "startingOffsets does not name exactly the topic's partitions",
    "Kafka's source requires every partition, also new ones (-2 is the earliest offset). It uses "
    "startingOffsets only for a checkpoint without batches.",
    LogPattern(
        "Name every partition of the topic in startingOffsets; export writes them in that form.",
        "offsets export {checkpoint}",
        classes=(
            "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED",
        ),
        texts=(r"you must specify all TopicPartitions",),
    ),
)
DATA_LOSS = rule(
    "SG-KAFKA-DATA-LOSS",
    Severity.ERROR,
    "Kafka no longer has the records that the checkpoint needs next",
    "Retention removed them before the job read them, or the topic was recreated. Spark stops "
    "(failOnDataLoss=true) or skips them with a warning (false). The rows are lost either way, "
    "unless another copy exists.",
    LogPattern(
        _SEE_FIRST,
        _SHOW,
        classes=(
            "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
            "COULD_NOT_READ_OFFSET_RANGE",
            "START_OFFSET_RESET",
        ),
        texts=(
            rf"Fetch position .{{1,400}} is out of range for partition {_TOPIC_PARTITION}",
            r"OffsetOutOfRangeException",
            r"Offsets out of range with no configured reset policy",
            r"Cannot fetch offset (?P<checkpoint_offset>\d{1,19})",
            r"Could not read records in offset \[(?P<from>\d{1,19}), (?P<to>\d{1,19})\)",
        ),
        family=_FAMILY,
    ),
    LogPattern(
        _SEE_FIRST,
        _SHOW,
        classes=("KAFKA_DATA_LOSS",),
        texts=(r"Some data may (?:have been|be) lost",),
        weak=True,
        family=_FAMILY,
    ),
)
UNREACHABLE = rule(
    "SG-KAFKA-UNREACHABLE",
    Severity.ERROR,
    "Kafka cannot be reached",
    "No broker answered in time, or its name cannot be resolved. The checkpoint is not touched, "
    "and the job resumes where it stopped once Kafka answers.",
    LogPattern(
        _ASK_BROKERS,
        _SHOW,
        texts=(
            r"Timed out waiting for a node assignment",
            r"No resolvable bootstrap urls",
            r"Timeout of \d{1,9}ms expired before the position for partition",
        ),
        family=_FAMILY,
    ),
    LogPattern(
        _ASK_BROKERS,
        _SHOW,
        texts=(
            r"apache\.kafka\.\S{1,99}TimeoutException",
            r"Bootstrap broker .{1,300} disconnected",
        ),
        weak=True,
        family=_FAMILY,
    ),
)
