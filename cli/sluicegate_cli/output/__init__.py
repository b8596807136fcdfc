"""The one way results, notes and errors leave the program."""

from sluicegate_cli.output.console import Mode, Sink, ensure_streams, next_command, write_error

__all__ = ["Mode", "Sink", "ensure_streams", "next_command", "write_error"]
