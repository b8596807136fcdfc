"""Subjects of new commits: `area: imperative`, at most 72 characters.

Commits up to `BASE` were made before the rule. Where there is no history that reaches back to it
(an archive, a shallow clone), there is nothing to check.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BASE = "8757f09"
SUBJECT = re.compile(r"[a-z0-9 ,.-]+: \S.*")
MOST = 72


def fault(subject: str) -> str | None:
    """What is wrong with a subject."""
    if not SUBJECT.fullmatch(subject):
        return "write it as `area: imperative`, the area in small letters"
    if len(subject) > MOST:
        return f"{len(subject)} characters are more than {MOST}"
    return None


def git(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("git") or pytest.skip("git is not installed: no subjects to check")
    return subprocess.run(
        [program, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_subjects_of_new_commits() -> None:
    if git("merge-base", "--is-ancestor", BASE, "HEAD").returncode != 0:
        pytest.skip(f"no git history back to {BASE}: no subjects to check")
    listed = git("log", "--no-merges", "--format=%h %s", f"{BASE}..HEAD")
    assert listed.returncode == 0, listed.stderr
    commits = (line.partition(" ")[::2] for line in listed.stdout.splitlines())
    faults = [
        f"{commit} {subject!r}: {fault(subject)}" for commit, subject in commits if fault(subject)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("subject", "is_right"),
    [
        ("checkpoint: never overwrite an existing barrier", True),
        ("docs, tests: follow the moved pages", True),
        ("a" * 10 + ": " + "b" * 60, True),
        ("a" * 10 + ": " + "b" * 61, False),
        ("Fix the barrier", False),
        ("Checkpoint: never overwrite a barrier", False),
        ("checkpoint:", False),
        ("checkpoint never overwrites", False),
    ],
)
def test_what_a_subject_is(subject: str, is_right: bool) -> None:
    assert (fault(subject) is None) is is_right
