"""From a driver log, a stack trace or a pasted message to its cause and the command to type.

`text` makes lines of whatever bytes there are, `reader` finds chains of exceptions in them,
`checkpoint` and `outside` are the tables of what is recognised, `facts` finds paths and ids.
"""

from sluicegate.spark.explain.reader import Explanation, explain
from sluicegate.spark.explain.text import read_lines

__all__ = ["Explanation", "explain", "read_lines"]
