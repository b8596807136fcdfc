"""Finds chains of exceptions in the lines of a log, and the cause of each.

A chain is one exception with its `Caused by` lines and their stack traces. The innermost line
that tells a cause decides; wrappers (StreamingQueryException, py4j, foreachBatch) tell none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sluicegate.errors import NotFound
from sluicegate.findings import Rule
from sluicegate.spark.explain.cause import Cause, Site, site_of
from sluicegate.spark.explain.facts import Facts, facts_of, named, started
from sluicegate.spark.explain.kafka import KAFKA_CAUSES
from sluicegate.spark.explain.logs import LOG_CAUSES
from sluicegate.spark.explain.outside import LAST_RESORT, OUTSIDE_CAUSES
from sluicegate.spark.explain.state import STATE_CAUSES
from sluicegate.spark.explain.text import clean, unfold

CAUSES = (*LOG_CAUSES, *STATE_CAUSES, *KAFKA_CAUSES, *OUTSIDE_CAUSES)
