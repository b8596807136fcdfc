"""Every command with its one-line summary, so that `--help` need not import any of them."""

from __future__ import annotations

GROUPS = {
    "locks": "see who holds which lock",
}

COMMANDS = {
    "init": "make a home and a commented sluicegate.toml",
    "demo": "show on this machine that kills lose nothing that was acknowledged",
    "status": "show every named target, or one in depth",
    "locks list": "list the locks of the home and who holds them",
    "doctor": "check Java, Spark, file system, clock and PATH",
}


def module_name(command: str) -> str:
    """The module that implements a command: `locks list` is `commands.locks_list`."""
    return "sluicegate_cli.commands." + command.replace(" ", "_").replace("-", "_")


def below(prefix: str) -> dict[str, str]:
    """Names and summaries of the commands and groups directly inside a group (`""`: the root)."""
    entries: dict[str, str] = {}
    for command, summary in COMMANDS.items():
        if not command.startswith(prefix):
            continue
        word, _, deeper = command[len(prefix) :].partition(" ")
        entries.setdefault(word, GROUPS[prefix + word] if deeper else summary)
    return entries


def is_group(path: str) -> bool:
    """Whether a path of words names a group."""
    return path in GROUPS
