"""Kafka's reassignment JSON, as `kafka-reassign-partitions.sh` reads and prints it.

A partition is a shard, and its preferred leader, the first replica, is the node that owns it. A new
leader that is already a replica is moved to the front, which copies nothing; any other replaces the
old leader. If a broker leaves, its followers are replaced, too, so that every partition keeps its
number of replicas and has each broker once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sluicegate.shards.assignment import UNOWNED, Assignment, AssignmentInvalid, from_names
from sluicegate.shards.planner import RebalancePlan, translated
from sluicegate.shards.weights import shard_number
from sluicegate.units import counted

_ANY = "any"


def assignment_of(document: Mapping[str, Any]) -> Assignment:
    """The leader of each partition, in the order of the file."""
    if document.get("version") != 1:
        raise ValueError(f"it has version {document.get('version')!r:.20}; only 1 is known")
    seen: set[tuple[str, int]] = set()
    brokers: set[int] = set()
    leaders: list[str | None] = []
    for each in document["partitions"]:
        topic, partition, replicas = _checked(each)
        if (topic, partition) in seen:
            raise ValueError(f"{topic}[{partition}] occurs twice")
        seen.add((topic, partition))
        brokers.update(replicas)
        leaders.append(str(replicas[0]))
    if not leaders:
        raise ValueError("it has no partitions")
    return from_names(leaders, {str(broker): 1 for broker in brokers})


def label(document: Mapping[str, Any], shard: int) -> str:
    """The label of a partition: `topic[0]`."""
    each = document["partitions"][shard]
    return f"{each['topic']}[{each['partition']}]"


def cost(document: Mapping[str, Any], after: Assignment, shard: int) -> str:
    """The cost of a partition's new leader."""
    leader = _leaders(after)[shard]
    if leader in document["partitions"][shard]["replicas"]:
        return "only the leader changes; it is already a replica"
    return f"copies the partition to {leader}"


def consequences(document: Mapping[str, Any], plan: RebalancePlan) -> list[str]:
    """The consequences of a plan for the brokers."""
    copies, count = _copies(document, plan), len(plan.moved)
    followers = sum(
        len(set(new["replicas"][1:]) - set(old["replicas"]))
        for old, new in zip(
            document["partitions"], reassigned(document, plan.after)["partitions"], strict=True
        )
    )
    copied = counted(copies, "partition is", "partitions are")
    known = counted(count - copies, "gets a leader that is", "get a leader that is")
    lines = [f"{copied} copied to a new leader; {known} already a replica."]
    if followers:
        where = "on brokers that leave"
        replaced = counted(followers, f"follower {where} is", f"followers {where} are")
        lines.append(f"{replaced} replaced, and copied.")
    return lines


def with_few_copies(document: Mapping[str, Any], plan: RebalancePlan) -> RebalancePlan:
    """A plan with the same loads and as many moves, that prefers leaders which are replicas.

    Only for plans by number: there all partitions of a broker are equivalent.
    """
    if plan.weights is not None or not plan.after.nodes:
        return plan
    owners = np.array(_preferring(document, plan), np.int32)
    made = Assignment(plan.after.n_shards, plan.after.nodes, owners, plan.after.version)
    other = replace(plan, after=made)
    return min(plan, other, key=lambda each: _copies(document, each))


def _preferring(document: Mapping[str, Any], plan: RebalancePlan) -> list[int]:
    """Owners with the loads of a plan; surplus partitions go first to their own replicas."""
    start = translated(plan.before, plan.after).tolist()
    before = Counter(owner for owner in start if owner != UNOWNED)
    after = Counter(plan.after.owners.tolist())
    going, coming = before - after, after - before
    number = {_broker(name): at for at, name in enumerate(plan.after.nodes)}
    found = list(start)
    for shard, owner in enumerate(start):
        if owner != UNOWNED and not going[owner]:
            continue
        replicas = [number.get(b, UNOWNED) for b in document["partitions"][shard]["replicas"]]
        chosen = next((r for r in replicas if r != UNOWNED and coming[r]), None)
        if chosen is not None:
            found[shard] = chosen
            coming[chosen] -= 1
            going[owner] -= owner != UNOWNED
    # The rest goes to the brokers that still need partitions.
    homeless = [shard for shard, owner in enumerate(found) if owner == UNOWNED]
    for shard in reversed(range(len(found))):
        owner = found[shard]
        if owner != UNOWNED and owner == start[shard] and going[owner]:
            going[owner] -= 1
            homeless.append(shard)
    for shard, owner in zip(sorted(homeless), sorted(coming.elements()), strict=True):
        found[shard] = owner
    return found


def _copies(document: Mapping[str, Any], plan: RebalancePlan) -> int:
    parts, leaders = document["partitions"], _leaders(plan.after)
    return sum(leaders[shard] not in parts[shard]["replicas"] for shard in plan.moved.tolist())


def reassigned(document: Mapping[str, Any], after: Assignment) -> dict[str, Any]:
    """The document with the new leaders, and without brokers that left."""
    known = {_broker(name): capacity for name, capacity in after.nodes.items()}
    leaders = _leaders(after)
    led = [_led_by(each, leaders[s]) for s, each in enumerate(document["partitions"])]
    held = Counter(broker for each in led for broker in each["replicas"] if broker in known)
    return {**document, "partitions": [_without_gone(each, known, held) for each in led]}


def rendered(document: Mapping[str, Any]) -> str:
    """The text of a document, with a line per partition."""
    head = json.dumps({k: v for k, v in document.items() if k != "partitions"})[:-1]
    lines = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in document["partitions"])
    return f'{head}, "partitions": [\n  {lines}\n]}}\n'


def _checked(each: Any) -> tuple[str, int, list[int]]:
    match each:
        case {"topic": str(topic), "partition": int(partition), "replicas": [*replicas]}:
            brokers = [r for r in replicas if type(r) is int and r >= 0]
            dirs = each.get("log_dirs")
            if not replicas or len(set(brokers)) != len(replicas):
                raise ValueError(f"the replicas of {topic}[{partition}] are not distinct brokers")
            if dirs is not None and (not isinstance(dirs, list) or len(dirs) != len(replicas)):
                raise ValueError(f"the log_dirs of {topic}[{partition}] are not one per replica")
            return topic, partition, brokers
    raise ValueError(f"{each!r:.80} is not a partition with topic, partition and replicas")


def _led_by(each: Mapping[str, Any], leader: int) -> dict[str, Any]:
    replicas = list(each["replicas"])
    if leader not in replicas:
        return _replaced(each, 0, leader)
    at = replicas.index(leader)
    order = [at, *(i for i in range(len(replicas)) if i != at)]
    found = {**each, "replicas": [replicas[i] for i in order]}
    if each.get("log_dirs") is not None:
        found["log_dirs"] = [each["log_dirs"][i] for i in order]
    return found


def _without_gone(
    each: Mapping[str, Any], known: Mapping[int, int], held: Counter[int]
) -> dict[str, Any]:
    """With every broker that left replaced by the one with the least load."""
    found = dict(each)
    for at, broker in enumerate(each["replicas"]):
        if broker in known:
            continue
        free = [b for b in known if b not in found["replicas"]]
        if not free:
            raise AssignmentInvalid(
                f"{each['topic']}[{each['partition']}] needs {len(each['replicas'])} replicas, but "
                f"only {counted(len(known), 'broker')} would be left",
                hint="add other brokers first, or lower the number of replicas in the file",
            )
        chosen = min(free, key=lambda b: (held[b] / known[b], b))
        held[chosen] += 1
        found = _replaced(found, at, chosen)
    return found


def _replaced(each: Mapping[str, Any], at: int, broker: int) -> dict[str, Any]:
    replicas = list(each["replicas"])
    replicas[at] = broker
    found = {**each, "replicas": replicas}
    if each.get("log_dirs") is not None:
        # The new broker chooses its own log directory.
        found["log_dirs"] = [_ANY if i == at else d for i, d in enumerate(each["log_dirs"])]
    return found


def _leaders(after: Assignment) -> list[int]:
    if not after.nodes or not after.is_complete:
        raise AssignmentInvalid("a partition cannot be without a leader")
    brokers = [_broker(name) for name in after.nodes]
    return [brokers[owner] for owner in after.owners.tolist()]


def _broker(name: str) -> int:
    number = shard_number(name)
    if number is None:
        raise AssignmentInvalid(
            f"{name!r} is not the id of a broker", hint="ids are numbers from 0"
        )
    return number
