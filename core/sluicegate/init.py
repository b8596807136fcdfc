"""Making a home and a commented configuration, without ever overwriting anything."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from sluicegate import config, home
from sluicegate.errors import NotFound
from sluicegate.plan import Action, Plan
from sluicegate.storage import LocalStorage, local_root

_MAKE_HOME = "make the home"
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


def apply_init(plan: Plan) -> None:
    """Make what the plan says; what somebody else made in the meantime is left as it is."""
    for action in plan.actions:
        if action.verb == _MAKE_HOME:
            home.create_marker(LocalStorage.create(Path(action.place)), str(uuid.uuid4()))
        else:
            path = Path(action.place)
            storage = LocalStorage.create(path.parent)
            storage.put_if_absent(path.name, config.example().encode())


def _what_is_there(root: Path) -> str:
    if not root.exists():
        return "a new directory"
    held = sum(1 for _ in root.iterdir())
    return f"the directory exists and holds {held} entries, which stay" if held else "it is empty"
