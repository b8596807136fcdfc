"""Every command with its one-line summary, so that `--help` need not import any of them."""

from __future__ import annotations

GROUPS = {
    "checkpoint": "inspect, verify, repair and move checkpoints",
    "offsets": "show, move, export and import positions",
    "dedup": "inspect and compact the dedup log of gated streams",
    "state": "inspect and compact the state of gated streams",
    "shards": "assign shards to nodes with the fewest possible moves",
    "locks": "list locks with their holders, and clear stale ones",
}

COMMANDS = {
    "init": "create a home and a commented sluicegate.toml",
    "demo": "show on this machine that killing a job loses nothing",
    "status": "show every named target, or one in detail",
    "explain": "find the cause of an error in a driver log, and the next command",
    "checkpoint inspect": "show the position and content of a checkpoint",
    "checkpoint list": "list its batches, or its snapshots",
    "checkpoint verify": "check that it is intact; findings name the repair",
    "checkpoint diff": "compare two batches, snapshots or checkpoints",
    "checkpoint repair": "repair what verify finds, or show the options",
    "checkpoint rollback": "roll back to an older batch or snapshot, completely",
    "checkpoint prune": "remove old snapshots, and files that nothing refers to",
    "checkpoint import": "import a legacy checkpoint into a gated stream",
    "checkpoint export": "write a snapshot of a gated stream as a legacy checkpoint",
    "checkpoint seed": "create a checkpoint that starts at chosen offsets",
    "checkpoint relocate": "copy a checkpoint to a place where it can be started",
    "offsets show": "show the positions of a target",
    "offsets reset": "move positions: to an offset, by a number, to a time",
    "offsets lag": "show how far positions are behind the end",
    "offsets export": "write positions as Spark JSON, Kafka CSV or rpk text",
    "offsets import": "set positions from a file or from legacy offset files",
    "offsets delete": "delete positions",
    "dedup stats": "show the content and size of the dedup log",
    "dedup check": "check whether a stamp (event id) was seen, and when",
    "dedup compact": "merge the dedup log; drop old producers",
    "state show": "show keys and bytes of every shard",
    "state query": "look keys up in the state",
    "state compact": "merge the deltas of every shard",
    "shards show": "show the load of every node",
    "shards locate": "show the shard and the node of a key",
    "shards join": "add nodes, and move their share of shards to them",
    "shards leave": "remove nodes, and move their shards to the others",
    "shards weights": "show the weights of the shards",
    "shards rebalance": "balance the shards again, by number or weight",
    "audit": "check whether data was lost or duplicated",
    "submit": "start a Spark application at the right position, and watch it",
    "maintain": "verify, compact, prune and collect; for cron, silent on success",
    "history": "list the changes of a target",
    "undo": "revert a change",
    "apply": "apply a saved plan",
    "locks list": "list the locks of the home and their holders",
    "locks break": "clear the lock of a dead holder, or fence off a job",
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


def is_known(line: str) -> bool:
    """Whether a command line names a command of this release, or another program's."""
    program, *words = line.split()
    if program != "sluicegate":
        return True
    return any(" ".join(words[:count]) in COMMANDS for count in (1, 2))


def is_group(path: str) -> bool:
    """Whether a path of words names a group."""
    return path in GROUPS
