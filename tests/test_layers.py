"""The layers of the design: lower never imports higher, and some imports have one home.

Written by hand, because "msgpack only in codec" for all modules present and future is one line
here and a list to maintain in the usual tools.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = [
    ("errors", "units", "who"),
    ("moments",),
    ("storage",),
    ("locks", "codec", "v1", "marker", "blobs"),
    ("findings",),
    ("plan", "saved_plan", "journal"),
    ("java",),
    ("schedule", "config_keys", "home", "config"),
    ("positions", "reset", "lag"),
    ("detection", "target"),
    ("offsets",),
    ("init",),
    ("spark",),
    ("dedup", "shards", "state"),
    ("log",),
    ("chain",),
    ("gate",),
    ("pipeline",),
    ("journals", "status", "doctor", "demo", "maintenance"),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ONE_HOME = {
    "msgpack": {"codec"},
    "portalocker": {"locks"},
    "tomli": {"config"},
    "pyarrow": {"pipeline", "state", "dedup", "shards"},
    "numpy": {"dedup", "pipeline", "shards"},
    "lz4": {"spark"},
    "xxhash": {"spark"},
    "google_crc32c": {"spark"},
    "prometheus_client": {"maintenance"},
}
CLI_ONLY = {"typer", "rich", "sluicegate_cli"}
PIPELINE_ONLY = {"pyspark"}


def modules(source_root: str) -> Iterator[tuple[str, Path]]:
    base = ROOT / source_root
    for path in sorted(base.rglob("*.py")):
        words = path.relative_to(base).with_suffix("").parts
        yield ".".join(words).removesuffix(".__init__"), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


CORE = list(modules("core"))


@pytest.mark.parametrize(("name", "path"), CORE, ids=[name for name, _ in CORE])
def test_core_module(name: str, path: Path) -> None:
    own = name.split(".")[1] if "." in name else ""
    assert not own or own in LEVEL, f"give {own} a place in LAYERS"
    for imported in imports(path):
        top, _, rest = imported.partition(".")
        assert top not in CLI_ONLY, f"{name} imports {top}"
        assert top not in ONE_HOME or own in ONE_HOME[top], f"{name} imports {top}"
        assert top not in PIPELINE_ONLY or own == "pipeline", f"{name} imports {top}"
        other = rest.split(".")[0]
        if top == "sluicegate" and other in LEVEL and other != own:
            assert LEVEL[other] < LEVEL[own] or _siblings(own, other), f"{name} imports {other}"


def _siblings(own: str, other: str) -> bool:
    """Modules of one layer may use each other, as long as it goes one way only."""
    return LEVEL[own] == LEVEL[other] and LAYERS[LEVEL[own]].index(other) < LAYERS[
        LEVEL[own]
    ].index(own)


CLI = list(modules("cli"))


@pytest.mark.parametrize(("name", "path"), CLI, ids=[name for name, _ in CLI])
def test_cli_module(name: str, path: Path) -> None:
    """The command line leaves formats, locks and Spark to the library."""
    for imported in imports(path):
        top = imported.partition(".")[0]
        assert top not in ONE_HOME.keys() | PIPELINE_ONLY, f"{name} imports {top}"


def test_errors_import_nothing_of_ours() -> None:
    assert not [i for i in imports(ROOT / "core/sluicegate/errors.py") if "sluicegate" in i]


def test_only_the_sink_prints() -> None:
    allowed = {"cli/sluicegate_cli/__main__.py"}
    for source in ("core", "cli"):
        for _, path in modules(source):
            calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
            prints = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
            assert not prints or str(path.relative_to(ROOT)) in allowed
