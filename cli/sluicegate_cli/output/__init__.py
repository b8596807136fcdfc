"""The one way results, notes and errors leave the program."""

from sluicegate_cli.output.console import Mode, Sink, ensure_streams, write_error
from sluicegate_cli.output.printers import next_command

__all__ = ["Mode", "Sink", "ensure_streams", "next_command", "write_error"]
