"""From a driver log, a stack trace or a pasted message to its cause and the command to type.

`text` makes lines of whatever bytes there are; `reader` finds chains of exceptions in them and the
cause of each; `fields` finds paths and ids. What is recognised are the log patterns of rules: those
of `checkpoint.rules`, and in `kafka` and `environment` those that only a log can tell.
"""

from sluicegate.spark.explain.reader import Explanation, explain
from sluicegate.spark.explain.text import STANDARD_INPUT, opened, read_lines

__all__ = ["STANDARD_INPUT", "Explanation", "explain", "opened", "read_lines"]
