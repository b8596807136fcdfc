"""Every command with its one-line summary, so that `--help` need not import any of them."""

from __future__ import annotations

GROUPS = {
    "checkpoint": "look into checkpoints, mend them and move them",
    "offsets": "show, move, export and import positions",
    "dedup": "look into the dedup log of gated streams, and compact it",
    "state": "look into the state of gated streams",
    "shards": "assign shards to nodes with the fewest possible moves",
    "locks": "see who holds which lock",
}

COMMANDS = {
    "init": "make a home and a commented sluicegate.toml",
    "demo": "show on this machine that killing a job loses nothing",
    "status": "show every named target, or one in depth",
    "explain": "name the cause of a driver log's error and the command to type",
    "checkpoint inspect": "show where a checkpoint stands",
    "checkpoint list": "list its batches, or its snapshots",
    "checkpoint verify": "check that it is sound; findings name the repair",
    "checkpoint diff": "compare two batches, snapshots or checkpoints",
    "checkpoint repair": "mend what verify finds, or show the choices",
    "checkpoint rollback": "go back to an older batch or snapshot, completely",
    "checkpoint prune": "give up old snapshots, and remove what nothing needs",
    "checkpoint import": "take over a v1 checkpoint into a gated stream",
    "checkpoint export": "write a snapshot of a gated stream as a v1 checkpoint",
    "checkpoint seed": "make a fresh checkpoint that starts at given offsets",
    "checkpoint relocate": "copy a checkpoint to where it can be started",
    "offsets show": "show the positions of a target",
    "offsets reset": "move positions: to an offset, by a number, to a time",
    "offsets lag": "show how far positions are behind the end",
    "offsets export": "write positions as Spark JSON, Kafka CSV or rpk text",
    "offsets import": "set positions from a file or from another layout",
    "offsets delete": "forget positions",
    "dedup stats": "show what the dedup log knows and costs",
    "dedup check": "was this stamp seen, and when?",
    "dedup compact": "merge the dedup log; give up what is old",
    "state show": "show keys and bytes of every shard",
    "state query": "look keys up in the state",
    "state compact": "merge the deltas of every shard",
    "shards show": "show the load of every node",
    "shards locate": "which shard and node has this key?",
    "shards join": "let nodes join, and give them their share",
    "shards leave": "let nodes leave, and share out what they own",
    "shards weights": "show what the shards weigh",
    "shards rebalance": "balance the shards again, by number or weight",
    "audit": "did it lose or double anything?",
    "submit": "start a Spark application from the right place, and stay with it",
    "maintain": "verify, compact, prune and collect; for cron, silent when well",
    "history": "list the changes of a target",
    "undo": "take a change back",
    "apply": "apply a saved plan",
    "locks list": "list the locks of the home and who holds them",
    "locks break": "clear what a dead holder left, or fence a job off",
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
