from __future__ import annotations

import shlex

import pytest

from sluicegate import units


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (12.7, "12 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (90061, "1 d 1 h"),
        (86400 * 400, "400 d"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 * 1024, "1.5 MiB"),
        (2**60, "1024.0 PiB"),
    ],
)
def test_size(count: int, text: str) -> None:
    assert units.size(count) == text


def test_utc() -> None:
    assert units.utc(1794800000.9) == "2026-11-16T03:33:20Z"


def test_a_command_is_what_a_shell_takes_for_its_words() -> None:
    assert units.command("checkpoint", "rollback", "/data/c", "--to", 7) == (
        "sluicegate checkpoint rollback /data/c --to 7"
    )
    words = [
        "undo",
        "it's",
        'a "b"',
        "$HOME",
        "",
        "a;b",
        "*",
        "~",
        "--map",
        "a b=c d",
        "line\nbreak",
    ]
    assert shlex.split(units.command(*words)) == ["sluicegate", *words]
