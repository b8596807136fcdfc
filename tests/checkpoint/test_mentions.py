"""Whether a command line names a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluicegate.liveness.jvm import Mention, mention


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["checkpoint"], Mention.ITSELF),
        (["--conf", "x=checkpoint/offsets"], Mention.ITSELF),
        (["elsewhere"], Mention.NOT),
        (["-c", "import sys\n" * 1000, "checkpoint"], Mention.ITSELF),
        (["-c", "/import sys\n" * 1000], Mention.NOT),
    ],
)
def test_words(tmp_path: Path, words: list[str], found: Mention) -> None:
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    assert mention(words, tmp_path / "checkpoint", tmp_path) is found
