"""Create homes, offset stores and a commented configuration; files are never overwritten.

The configuration contains lines for cron and systemd. Neither has the PATH or the directory of
the operator's shell, so both get complete paths, and the program by the name that is unique.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from sluicegate import config
from sluicegate.errors import NotFound, UnsupportedFormat
from sluicegate.offsets import LockFileOffsetStore
from sluicegate.offsets.legacy import is_legacy
from sluicegate.plan import Action, Plan
from sluicegate.storage import LocalStorage, local_root, open_storage
from sluicegate.stream import home
from sluicegate.units import command, counted

NAME = "sluicegate"
_ELSEWHERE = Path("/usr/local/bin") / NAME


@dataclass(frozen=True, slots=True)
class Installation:
    """The parameters of a run: the program, the configuration and the home."""

    program: Path
    config: Path
    home: Path

    @classmethod
    def of(cls, config: Path, home: Path) -> Installation:
        """The program that runs now, with this configuration and home."""
        own = Path(sys.executable).absolute().with_name(NAME)
        return cls(own if own.exists() else _ELSEWHERE, config.absolute(), home.absolute())

    @property
    def words(self) -> list[str]:
        """The command line of a run."""
        config, home = str(self.config), str(self.home)
        return [str(self.program), "maintain", "--all", "--config", config, "--home", home]


def cron_line(installation: Installation) -> str:
    """The line of a crontab: every quarter of an hour."""
    # In a crontab a percent sign ends the command.
    command = " ".join(quote(word) for word in installation.words).replace("%", r"\%")
    return f"*/15 * * * *  {command}"


def service_unit(installation: Installation) -> str:
    """`sluicegate-maintain.service`; exit code 3 makes it a failed unit."""
    command = " ".join(_systemd(word) for word in installation.words)
    return (
        "[Unit]\n"
        "Description=Sluicegate: verify, compact, prune and collect\n"
        "\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"ExecStart={command}\n"
    )


def timer_unit() -> str:
    """`sluicegate-maintain.timer`: every quarter of an hour, and soon after a missed one."""
    return (
        "[Unit]\n"
        "Description=Sluicegate, every quarter of an hour\n"
        "\n"
        "[Timer]\n"
        "OnCalendar=*:0/15\n"
        "Persistent=true\n"
        "\n"
        "[Install]\n"
        "WantedBy=timers.target\n"
    )


def commented(installation: Installation) -> str:
    """The lines for cron and systemd, as comments of a configuration."""
    units = {"service": service_unit(installation), "timer": timer_unit()}
    lines = [
        "Unattended, by cron (crontab -e); cron mails the output, which is empty when all is well:",
        cron_line(installation),
        "Or by systemd: these two files, then: systemctl enable --now sluicegate-maintain.timer",
    ]
    for kind, text in units.items():
        lines.append(f"/etc/systemd/system/sluicegate-maintain.{kind}")
        # Indented, because a table of this file looks the same.
        lines += [f"    {line}" for line in text.splitlines() if line]
    return "".join(f"# {line}\n" for line in lines)


def _systemd(word: str) -> str:
    """A word of a unit's command, with specifiers and variables escaped."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = all(c.isalnum() or c in "-_./:@+,=%" for c in escaped)
    return escaped if plain else f'"{escaped}"'


_MAKE_HOME = "create the home"
_MAKE_STORE = "create the store"
_WRITE = "write"


def plan_init(home_uri: str, config_path: Path) -> Plan:
    """The plan to create a home and its configuration; a damaged marker is refused."""
    actions = []
    root = local_root(home_uri)
    try:
        home.open_home(home_uri)
    except NotFound:
        actions.append(Action(_MAKE_HOME, str(root), _contents(root)))
    if not os.path.lexists(config_path):
        actions.append(Action(_WRITE, str(config_path), "a commented example; it sets nothing"))
    return Plan(f"Set up Sluicegate in {root}", tuple(actions))


def plan_store(uri: str) -> Plan:
    """The plan to create an offset store; a damaged marker is refused."""
    root = local_root(uri)
    actions = []
    if root.is_dir() and is_legacy(open_storage(uri, read_only=True)):
        raise UnsupportedFormat(
            f"{root} holds legacy offset files, which a store in the same directory would hide",
            hint="create the store elsewhere, then: "
            + command("offsets", "import", "STORE", str(root), "--consumer", "NAME"),
            place=str(root),
        )
    try:
        LockFileOffsetStore.open(uri, read_only=True)
    except NotFound:
        actions.append(Action(_MAKE_STORE, str(root), _contents(root)))
    return Plan(f"Create an offset store in {root}", tuple(actions))


def apply_init(plan: Plan, reason: str | None, home_uri: str) -> None:
    """Apply the plan; files that another process created in the meantime are left unchanged."""
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
    """A commented configuration, with the maintenance commands of this installation."""
    return f"{config.example()}\n{commented(Installation.of(path, local_root(home_uri)))}"


def _contents(root: Path) -> str:
    if not root.exists():
        return "a new directory"
    held = sum(1 for _ in root.iterdir())
    if not held:
        return "it is empty"
    return f"the directory exists and keeps its {counted(held, 'entry', 'entries')}"
