from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sluicegate import codec
from sluicegate.config import Config, parse_config
from sluicegate.errors import NotFound, SluicegateError, UnsupportedFormat
from sluicegate.resolve import list_targets, resolve
from sluicegate.target import TargetKind, detect

ROOT = Path(__file__).parents[2]
V1 = struct.pack("<QQQII", 7, 0, 7, 0, 0)


def make(root: Path, *names: str) -> Path:
    """A directory with empty files, and directories for names that end in a slash."""
    root.mkdir(exist_ok=True)
    for name in names:
        if name.endswith("/"):
            (root / name).mkdir()
        else:
            (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("names", "kind", "why"),
    [
        (("metadata", "offsets/", "commits/"), "spark-checkpoint", "it has metadata, offsets"),
        (("offsets/", "commits/"), "spark-checkpoint", "it has offsets, commits"),
        (("metadata", "commits/"), "spark-checkpoint", "it has metadata, commits"),
        (("chain/", "blobs/"), "stream", "it has chain/"),
        (("topic-1-consumer-2.offset",), "offset-store", "a legacy offset file"),
    ],
)
def test_directories(tmp_path: Path, names: tuple[str, ...], kind: str, why: str) -> None:
    found, reason = detect(str(make(tmp_path / "x", *names)))
    assert found.value == kind
    assert why in reason


def test_an_offset_store_is_known_by_content_not_by_name(tmp_path: Path) -> None:
    (tmp_path / "c.offsets").write_bytes(b"hello")
    with pytest.raises(UnsupportedFormat):
        detect(str(tmp_path))
    (tmp_path / "c.offsets").write_bytes(codec.encode(codec.Format("offsets", 1, 100), {}))
    assert detect(str(tmp_path))[0] is TargetKind.OFFSET_STORE


@pytest.mark.parametrize(
    "names", [(), ("offsets/",), ("metadata",), ("offsets", "commits"), ("notes.txt",)]
)
def test_what_is_nothing_known(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(UnsupportedFormat, match="not a Spark checkpoint"):
        detect(str(make(tmp_path / "x", *names)))


def test_a_v1_file_is_known_by_decoding_it(tmp_path: Path) -> None:
    (tmp_path / "cp").write_bytes(V1)
    assert detect(str(tmp_path / "cp")) == (
        TargetKind.V1_CHECKPOINT,
        "it decodes as one, at sequence 7",
    )
    (tmp_path / "cp").write_bytes(V1[:-1])
    with pytest.raises(UnsupportedFormat):
        detect(str(tmp_path / "cp"))


def test_a_single_frame_is_not_a_target(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(codec.encode(codec.Format("home", 1, 100), {}))
    with pytest.raises(UnsupportedFormat, match="of kind 'home'"):
        detect(str(tmp_path / "f"))


def configured(tmp_path: Path, text: str) -> Config:
    return parse_config(text.encode(), tmp_path / "sluicegate.toml")


def test_names_come_before_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "real", "metadata", "offsets/")
    make(tmp_path / "orders", "chain/")
    monkeypatch.chdir(tmp_path)
    config = configured(tmp_path, '[targets.orders]\ncheckpoint = "real"')
    assert resolve("orders", config, "home").kind is TargetKind.SPARK_CHECKPOINT
    assert resolve("./orders", config, "home").kind is TargetKind.STREAM


def test_a_stream_is_looked_for_in_the_home(tmp_path: Path) -> None:
    make(tmp_path / "home")
    make(tmp_path / "home" / "clicks", "chain/")
    config = configured(tmp_path, '[streams.clicks]\nsource = "x"')
    target = resolve("clicks", config, str(tmp_path / "home"))
    assert (target.kind, target.uri) == (TargetKind.STREAM, str(tmp_path / "home/clicks"))


def test_the_kind_can_be_said(tmp_path: Path) -> None:
    target = resolve(str(tmp_path), Config(), "home", TargetKind.OFFSET_STORE)
    assert (target.kind, target.why) == (TargetKind.OFFSET_STORE, "set with --as")
    with pytest.raises(NotFound):
        resolve(str(tmp_path / "no"), Config(), "home", TargetKind.OFFSET_STORE)


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    config = configured(tmp_path, '[targets.orders]\ncheckpoint = "x"')
    with pytest.raises(NotFound, match="'oders'; known names: orders"):
        resolve("oders", config, "home")


def test_survey_puts_what_needs_a_person_first(tmp_path: Path) -> None:
    make(tmp_path / "good", "metadata", "offsets/")
    make(tmp_path / "odd", "notes.txt")
    make(tmp_path / "store", "topic-1-consumer-1.offset")
    config = configured(
        tmp_path,
        """
        [targets.a-good]
        checkpoint = "good"
        [targets.b-mistaken]
        checkpoint = "store"
        [targets.c-odd]
        checkpoint = "odd"
        [targets.d-gone]
        offsets = "gone"
        [targets.e-far]
        checkpoint = "s3a://bucket/x"
        [streams.f-new]
        source = "x"
        """,
    )
    seen = list_targets(config, str(tmp_path))
    codes = [(s.name, [f.code for f in s.findings]) for s in seen]
    assert codes == [
        ("c-odd", ["SG-TARGET-UNRECOGNISED"]),
        ("d-gone", ["SG-TARGET-MISSING"]),
        ("e-far", ["SG-TARGET-UNREADABLE"]),
        ("a-good", []),
        ("b-mistaken", ["SG-TARGET-MISMATCH"]),
        ("f-new", ["SG-TARGET-NOT-STARTED"]),
    ]


def test_one_odd_entry_does_not_hide_a_store(tmp_path: Path) -> None:
    (tmp_path / "a.offsets").mkdir()
    (tmp_path / "b.offsets").symlink_to("nowhere")
    (tmp_path / "c\x1b.offsets").write_bytes(b"")
    (tmp_path / "d.offsets").write_bytes(codec.encode(codec.Format("offsets", 1, 100), {}))
    assert detect(str(tmp_path))[0] is TargetKind.OFFSET_STORE


def test_a_home_that_is_not_supported_does_not_hide_the_other_targets(tmp_path: Path) -> None:
    make(tmp_path / "good", "metadata", "offsets/")
    text = '[targets.good]\ncheckpoint = "good"\n[streams.s]\nsource = "x"'
    seen = {
        s.name: [f.code for f in s.findings]
        for s in list_targets(configured(tmp_path, text), "s3://x/y")
    }
    assert seen == {"good": [], "s": ["SG-TARGET-UNREADABLE"]}


@pytest.mark.parametrize("word", ["x" * 5000, "a/" + "x" * 5000])
def test_names_that_are_too_long(word: str) -> None:
    with pytest.raises(SluicegateError):
        resolve(word, Config(), "home")


NEW_KIND = '''"""Notes as targets, for a test."""

from typing import ClassVar

from sluicegate.report import Report
from sluicegate.target import Candidate, Status, Target, TargetKind


class Notes(Target):
    """A directory with a file called NOTES."""

    kind: ClassVar = TargetKind.NOTES

    @classmethod
    def detect(cls, found: Candidate) -> str | None:
        return "it has NOTES" if found.entries.get("NOTES") == "file" else None

    def inspect(self, at: int | None = None) -> Report:
        return Report("sluicegate.notes", {"notes": self.uri})

    def status(self) -> Status:
        return Status(summary="written")


ADAPTER = Notes
'''


def test_a_new_kind_is_one_package_and_one_line(tmp_path: Path) -> None:
    """Commands work on it, or say that they do not, without a change of theirs."""
    for top in ("core", "cli"):
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / top, tmp_path / top, ignore=unwanted)
    package = tmp_path / "core/sluicegate/notes"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "target.py").write_text(NEW_KIND)
    registry = tmp_path / "core/sluicegate/target.py"
    line = '    STREAM = "stream", "sluicegate.stream.target"\n'
    new = '    NOTES = "notes", "sluicegate.notes.target"\n'
    text = registry.read_text()
    assert text.count(line) == 1
    registry.write_text(text.replace(line, line + new))
    make(tmp_path / "x", "NOTES")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        paths = f"{tmp_path}/core{os.pathsep}{tmp_path}/cli"
        return subprocess.run(
            [sys.executable, "-m", "sluicegate_cli", *words, "--json"],
            env=os.environ | {"PYTHONPATH": paths},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    shown = json.loads(run("status", "./x").stdout)["targets"][0]
    assert (shown["kind"], shown["why"], shown["summary"]) == ("notes", "it has NOTES", "written")
    assert json.loads(run("checkpoint", "inspect", "./x").stdout)["notes"] == "./x"
    refused = run("checkpoint", "verify", "./x")
    assert refused.returncode == UnsupportedFormat.exit_code
    assert "is a notes (it has NOTES); this command needs a spark-checkpoint" in refused.stderr
    assert "notes" in run("status", "--help").stdout
