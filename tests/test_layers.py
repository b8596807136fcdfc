"""The layers of the design: lower never imports higher, nothing imports in circles, and some
imports have one home.

Imports inside functions and those for type checkers count like any other. Written by hand, because
"msgpack only in codec" for all modules present and future is one line here and a list to maintain
in the usual tools.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the lowest to the highest; packages in one tuple do not know each other.
LAYERS = [
    ("errors",),
    ("units", "process", "arrow"),
    ("codec", "locks", "storage", "identity"),
    ("findings", "positions"),
    ("plan", "saved_plan", "lag", "config", "report"),
    ("journal", "reset"),
    ("maintenance",),
    ("target",),
    ("resolve",),
    ("dedup", "state", "shards", "sinks", "liveness", "legacy"),
    ("sources", "offsets"),
    ("producer", "checkpoint"),
    ("stream",),
    ("spark",),
    ("job",),
    ("ops",),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ONE_HOME = {
    "msgpack": {"codec"},
    "portalocker": {"locks"},
    "tomli": {"config"},
    "pyarrow": {"arrow", "job", "state", "dedup", "shards"},
    "numpy": {"arrow", "dedup", "job", "shards"},
    "lz4": {"checkpoint"},
    "xxhash": {"checkpoint"},
    "google_crc32c": {"checkpoint"},
    "prometheus_client": {"ops"},
}
CLI_ONLY = {"typer", "rich", "sluicegate_cli"}
# PySpark comes with the job, and with what a source or sink does in Spark's tasks.
SPARK_SIDE = ("sluicegate.job",)

# Who knows that a storage may be a directory of this machine. The rest of the product works on
# any storage, so this list may only become shorter.
KNOWS_PATHS = {
    "sluicegate.checkpoint.writers": "looks for processes of this machine",
    "sluicegate.config": "the configuration is a file of this machine",
    "sluicegate.legacy.v1": "reads a file of this machine",
    "sluicegate.liveness.jvm": "paths in command lines",
    "sluicegate.offsets.legacy": "reads other layouts",
    "sluicegate.ops.doctor": "tries out this machine",
    "sluicegate.ops.metrics": "a file for a collector of this machine",
    "sluicegate.ops.setup": "makes the configuration",
    "sluicegate.producer.outbox": "the outbox is appended to",
    "sluicegate.producer.producer": "the outbox is appended to",
    "sluicegate.saved_plan": "plans are files of this machine",
    "sluicegate.shards.journal": "follows snapshots to the file",
    "sluicegate.sources.log.log": "the embedded log is read in place",
    "sluicegate.sources.log.writer": "the embedded log is appended to",
    "sluicegate.spark.submit.preflight": "Spark is started on this machine",
    "sluicegate.sinks.files": "tasks write files; directories are published",
    "sluicegate.stream.gc": "files of tasks, which write without a storage",
    "sluicegate.stream.home": "tells a missing home from one that is not mounted",
    "sluicegate.stream.output": "the sink is a directory",
    "sluicegate.resolve": "names that are paths",
    "sluicegate.target": "files that are targets",
}
PATH_NAMES = {"local_root", "local_path", "LocalStorage", "FileLock"}


def modules(source_root: str) -> dict[str, Path]:
    base = ROOT / source_root
    found = {}
    for path in sorted(base.rglob("*.py")):
        words = path.relative_to(base).with_suffix("").parts
        found[".".join(words).removesuffix(".__init__")] = path
    return found


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


CORE, CLI = modules("core"), modules("cli")
OURS = CORE | CLI


def imported_modules(name: str) -> set[str]:
    """Which of our modules a module imports; a package only if something of its own is taken."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(OURS[name].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in OURS:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in OURS else node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in OURS)
    return found - {name}


@pytest.mark.parametrize(("name", "path"), CORE.items(), ids=list(CORE))
def test_core_module(name: str, path: Path) -> None:
    own = name.split(".")[1] if "." in name else ""
    assert not own or own in LEVEL, f"give {own} a place in LAYERS"
    for imported in imports(path):
        top, _, rest = imported.partition(".")
        assert top not in CLI_ONLY, f"{name} imports {top}"
        assert top not in ONE_HOME or own in ONE_HOME[top] or name.startswith(SPARK_SIDE), (
            f"{name} imports {top}"
        )
        assert top != "pyspark" or name.startswith(SPARK_SIDE), f"{name} imports {top}"
        other = rest.split(".")[0]
        if top == "sluicegate" and other in LEVEL and own and other != own:
            assert LEVEL[other] < LEVEL[own] or _siblings(own, other), f"{name} imports {other}"


def _siblings(own: str, other: str) -> bool:
    """Root modules of one layer may use each other, as long as it goes one way only."""
    ours, theirs = (LAYERS[LEVEL[each]].index(each) for each in (own, other))
    return LEVEL[own] == LEVEL[other] and theirs < ours


@pytest.mark.parametrize(("name", "path"), CLI.items(), ids=list(CLI))
def test_cli_module(name: str, path: Path) -> None:
    """The command line leaves formats, locks and Spark to the library."""
    for imported in imports(path):
        top = imported.partition(".")[0]
        assert top not in {*ONE_HOME, "pyspark"}, f"{name} imports {top}"


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other; what is left when ends are taken away again and again
    is circles and what lies between them."""
    left = {name: set(others) & graph.keys() for name, others in graph.items()}
    while True:
        targets = {other for others in left.values() for other in others}
        ends = {name for name, others in left.items() if not others or name not in targets}
        if not ends:
            return [sorted(left)] if left else []
        left = {name: others - ends for name, others in left.items() if name not in ends}


def unit(name: str, depth: int) -> str:
    """The part of the tree at a depth that a module belongs to."""
    return ".".join(name.split(".")[:depth])


@pytest.mark.parametrize("depth", [2, 3, 9], ids=["packages", "sub-packages", "modules"])
def test_nothing_imports_in_circles(depth: int) -> None:
    graph: dict[str, set[str]] = {}
    for name in CORE:
        own = unit(name, depth)
        others = {unit(other, depth) for other in imported_modules(name)}
        graph.setdefault(own, set()).update(others - {own, "sluicegate"})
    assert circles(graph) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_only_some_know_paths() -> None:
    found = set()
    for name, path in CORE.items():
        if name.split(".")[1:2] in (["storage"], ["locks"]):
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        if names & PATH_NAMES:
            found.add(name)
    assert found == KNOWS_PATHS.keys()


def test_errors_import_nothing_of_ours() -> None:
    assert not [i for i in imports(ROOT / "core/sluicegate/errors.py") if "sluicegate" in i]


def test_only_the_sink_prints() -> None:
    allowed = {"cli/sluicegate_cli/__main__.py"}
    for path in OURS.values():
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        prints = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
        assert not prints or str(path.relative_to(ROOT)) in allowed
