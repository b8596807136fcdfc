"""The one way results, notes and errors leave the program."""

from sluicegate_cli.output.sink import Mode, Sink
from sluicegate_cli.output.view import Table, View

__all__ = ["Mode", "Sink", "Table", "View"]
