"""From a driver log, a stack trace or a pasted message to its cause and the command to type.

`text` makes lines of whatever bytes there are; `reader` finds chains of exceptions in them, and
`chain` the cause of each. What is recognised stands in tables: `logs` and `state` for damage of
the checkpoint, `kafka` and `outside` for the rest. `facts` finds paths and ids.
"""

from sluicegate.spark.explain.reader import Explanation, explain
from sluicegate.spark.explain.text import STANDARD_INPUT, opened, read_lines

__all__ = ["STANDARD_INPUT", "Explanation", "explain", "opened", "read_lines"]
