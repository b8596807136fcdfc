"""How `sluicegate maintain` is run unattended: a line for cron, units for systemd.

Neither knows the PATH or the directory of a person's shell, so both name everything in full, and
the program by the name that no other program has.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

NAME = "sluicegate"
_ELSEWHERE = Path("/usr/local/bin") / NAME


@dataclass(frozen=True, slots=True)
class Installation:
    """What a run needs to be told: the program, the configuration and the home."""

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
    # To cron a percent sign ends the command.
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
    """All of it as comments of a configuration."""
    units = {"service": service_unit(installation), "timer": timer_unit()}
    lines = [
        "Unattended, by cron (crontab -e); cron mails what is printed, which is nothing when all",
        "is well:",
        cron_line(installation),
        "Or by systemd: these two files, then: systemctl enable --now sluicegate-maintain.timer",
    ]
    for kind, text in units.items():
        lines.append(f"/etc/systemd/system/sluicegate-maintain.{kind}")
        # Indented, since a table of this file looks the same.
        lines += [f"    {line}" for line in text.splitlines() if line]
    return "".join(f"# {line}\n" for line in lines)


def _systemd(word: str) -> str:
    """A word of a unit's command: specifiers and variables mean nothing in it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = all(c.isalnum() or c in "-_./:@+,=%" for c in escaped)
    return escaped if plain else f'"{escaped}"'
