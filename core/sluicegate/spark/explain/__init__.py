"""From a driver log, a stack trace or a pasted message to its cause and the command to type.

`text` turns bytes of any kind into lines; `reader` finds chains of exceptions in them and the cause
of each; `fields` finds paths and ids. Causes are recognised by the log patterns of rules: those of
`checkpoint.rules`, and in `kafka` and `environment` those that only a log shows.
"""

from sluicegate.spark.explain.reader import Explanation, explain
from sluicegate.spark.explain.text import STANDARD_INPUT, opened, read_lines

__all__ = ["STANDARD_INPUT", "Explanation", "explain", "opened", "read_lines"]
