"""Making homes, offset stores and a commented configuration; nothing is ever overwritten."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

from sluicegate import config, home
from sluicegate.errors import NotFound, UnsupportedFormat
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.reference import is_reference
from sluicegate.plan import Action, Plan
from sluicegate.schedule import Installation, commented
from sluicegate.storage import LocalStorage, local_root, open_storage

_MAKE_HOME = "make the home"
_MAKE_STORE = "make the store"
_WRITE = "write"


def plan_init(home_uri: str, config_path: Path) -> Plan:
    """What is missing of a home and its configuration; refuses a home with a damaged marker."""
    actions = []
    root = local_root(home_uri)
    try:
        home.open_home(home_uri)
    except NotFound:
        actions.append(Action(_MAKE_HOME, str(root), _what_is_there(root)))
    if not os.path.lexists(config_path):
        actions.append(Action(_WRITE, str(config_path), "a commented example; it sets nothing"))
    return Plan(f"Set up Sluicegate in {root}", tuple(actions))


def plan_store(uri: str) -> Plan:
    """What is missing of an offset store; refuses one with a damaged marker."""
    root = local_root(uri)
    actions = []
    if root.is_dir() and is_reference(open_storage(uri, read_only=True)):
        raise UnsupportedFormat(
            f"{root} holds positions in the reference layout, which a store there would hide",
            hint="make the store elsewhere, then: sluicegate offsets import STORE "
            f"{quote(str(root))} --consumer NAME",
            place=str(root),
        )
    try:
        LockFileOffsetStore.open(uri, read_only=True)
    except NotFound:
        actions.append(Action(_MAKE_STORE, str(root), _what_is_there(root)))
    return Plan(f"Make an offset store in {root}", tuple(actions))


def apply_init(plan: Plan, reason: str | None, home_uri: str) -> None:
    """Make what the plan says; what somebody else made in the meantime is left as it is."""
    for action in plan.actions:
        if action.verb == _MAKE_HOME:
            home.MARKER.create(LocalStorage.create(Path(action.place)), reason)
        elif action.verb == _MAKE_STORE:
            LockFileOffsetStore.create(action.place, reason)
        else:
            path = Path(action.place)
            storage = LocalStorage.create(path.parent)
            storage.put_if_absent(path.name, _example(path, home_uri).encode())


def _example(path: Path, home_uri: str) -> str:
    """A commented configuration, with how to run the maintenance of this very installation."""
    return f"{config.example()}\n{commented(Installation.of(path, local_root(home_uri)))}"


def _what_is_there(root: Path) -> str:
    if not root.exists():
        return "a new directory"
    held = sum(1 for _ in root.iterdir())
    return f"the directory exists and holds {held} entries, which stay" if held else "it is empty"
