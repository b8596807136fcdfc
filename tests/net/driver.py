"""Runs cases with the real command line: a process that has imported it once, and forks.

    python -m tests.net.driver CASES RESULTS [--jobs N] [--ahead SECONDS]

reads one case per line and writes one result per line, in any order. Starting Python and importing
takes longer than most commands, so this process imports everything and runs nothing; each command
runs in a fork of it, with its own standard streams, directory and environment. The one import of
the product is in `entry_point`.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import io
import json
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module, util
from pathlib import Path
from typing import Any, NoReturn

from tests.net import corpus
from tests.net.case import Case, Step, filled
from tests.net.masks import Masks, without_machine
from tests.net.trees import Tree

LONGEST_SECONDS = 120
TIMED_OUT = -999
_LIBRARIES = (
    "google_crc32c", "lz4.block", "lz4.frame", "msgpack", "numpy", "portalocker",
    "prometheus_client", "pyarrow", "pyarrow.compute", "pyarrow.parquet", "rich.table", "xxhash",
)  # fmt: skip
_PACKAGES = ("sluicegate", "sluicegate_cli")

Run = Callable[[list[str]], int]


def entry_point() -> Run:
    """The product's entry point, with all its modules imported but those that need Spark."""
    from sluicegate_cli.shell import run

    for name in _LIBRARIES:
        import_module(name)
    for package in _PACKAGES:
        for name in _modules(package):
            import_module(name)
    return run


def _modules(package: str) -> Iterator[str]:
    """Every module of a package that can be imported without Spark."""
    top = import_module(package)
    for info in pkgutil.walk_packages(top.__path__, f"{package}."):
        found = util.find_spec(info.name)
        source = Path(found.origin).read_text() if found and found.origin else "pyspark"
        is_main = info.name.endswith("__main__")
        if not is_main and "import pyspark" not in source and "from pyspark" not in source:
            yield info.name


class Driver:
    """Runs cases in forks of this process, some at a time."""

    def __init__(self, run: Run, roots: Path) -> None:
        self._run, self._roots = run, roots

    def run_all(self, cases: list[Case], results: Path, jobs: int) -> None:
        """Write the result of every case; the workers draw the next case from a pipe."""
        gc.collect()
        gc.freeze()
        reading, writing = os.pipe()
        workers = []
        for number in range(jobs):
            pid = os.fork()
            if pid == 0:
                os.close(writing)
                self._work(cases, reading, results.with_name(f"{results.name}.{number}"))
            workers.append(pid)
        os.close(reading)
        with suppress(BrokenPipeError):
            for number in range(len(cases)):
                os.write(writing, number.to_bytes(4, "big"))
        os.close(writing)
        failed = [pid for pid in workers if os.waitpid(pid, 0)[1] != 0]
        with results.open("wb") as joined:
            for number in range(jobs):
                part = results.with_name(f"{results.name}.{number}")
                joined.write(part.read_bytes())
        if failed:
            sys.exit("a worker of the net failed, see above")

    def _work(self, cases: list[Case], turns: int, results: Path) -> NoReturn:
        code = 1
        try:
            with results.open("w") as stream:
                while turn := os.read(turns, 4):
                    case = cases[int.from_bytes(turn, "big")]
                    stream.write(json.dumps(self.result(case)) + "\n")
            code = 0
        except BaseException:  # noqa: BLE001 - this process must not go on as its parent
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)

    def result(self, case: Case) -> dict[str, Any]:
        """What each step of a case printed and did, masked."""
        with _root(self._roots) as root:
            for name in case.members:
                corpus.place(name, root)
            home = root / case.members[0].partition("!")[0] if case.members else root
            masks = Masks(str(root))
            tree, texts = Tree.of(root), dict[str, str]()
            documents: list[Any] = []
            steps = []
            with _held(home / case.hold if case.hold else None):
                for step in case.steps:
                    words = filled(step.words, documents)
                    code, out, err = self._step(step, words, home, root)
                    document = _parsed(out)
                    documents.append(document)
                    steps.append(
                        {
                            "words": masks.document(words),
                            "exit": code,
                            "out": masks.document(document),
                            "err": masks.document(_parsed(err)),
                            "tree": tree.changes(masks, texts),
                        }
                    )
            return {"name": case.name, "steps": steps, "texts": texts}

    def _step(self, step: Step, words: list[str], cwd: Path, root: Path) -> tuple[int, str, str]:
        """Run a command in a fork; its exit code and what it printed."""
        with tempfile.TemporaryDirectory(dir=self._roots) as scratch:
            streams = [Path(scratch, name) for name in ("in", "out", "err")]
            streams[0].write_text(step.stdin)
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                self._become(step, words, cwd, root, streams)
            code = _wait(pid)
            printed = [path.read_text(errors="backslashreplace") for path in streams[1:]]
            return code, printed[0], printed[1]

    def _become(
        self, step: Step, words: list[str], cwd: Path, root: Path, streams: list[Path]
    ) -> NoReturn:
        """Be the command: in this process, with the surroundings of a new one."""
        code = 70
        try:
            os.setsid()
            os.chdir(cwd)
            flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
            for number, path in enumerate(streams):
                opened = os.open(path if step.stdin or number else "/dev/null", flags[number])
                os.dup2(opened, number)
                os.close(opened)
            sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), "utf-8")
            sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), "utf-8")
            sys.stderr = io.TextIOWrapper(
                os.fdopen(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True
            )
            os.environ.clear()
            os.environ.update(_environment(root))
            tempfile.tempdir = None
            time.tzset()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP):
                default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, signal.SIG_IGN if number == signal.SIGPIPE else default)
            sys.argv = ["sluicegate", *words, *([] if step.plain else ["--json"])]
            code = self._run(list(sys.argv))
        except BaseException:  # noqa: BLE001 - this process must not go on as its parent
            sys.excepthook(*sys.exc_info())
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _environment(root: Path) -> dict[str, str]:
    """A clean environment, without programs: whether there is Java differs between machines."""
    return {
        "HOME": str(root),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "PATH": str(root / "nowhere"),
        "TMPDIR": str(root.parent),
        "TZ": "UTC",
    }


def _wait(pid: int) -> int:
    """The exit code of a child, which is killed if it takes too long."""
    deadline = time.monotonic() + LONGEST_SECONDS
    pause = 0.001
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return TIMED_OUT
        time.sleep(pause)
        pause = min(pause * 1.3, 0.02)


def _parsed(printed: str) -> Any:
    """What was printed: a JSON document, or the text itself."""
    printed = without_machine(printed)
    try:
        return json.loads(printed)
    except ValueError:
        return printed


@contextmanager
def _root(below: Path) -> Iterator[Path]:
    """A new directory whose path is as long as the corpus's own place."""
    above = Path(tempfile.mkdtemp(prefix="c", dir=below))
    try:
        rest = len(corpus.PLACE) - len(str(above)) - 1
        assert rest > 0, f"{above} is too long; use a shorter directory for temporary files"
        root = above / ("r" * rest)
        root.mkdir()
        yield root
    finally:
        shutil.rmtree(above, ignore_errors=True)


@contextmanager
def _held(path: Path | None) -> Iterator[None]:
    """Another process, as seen by the command, holds this lock file."""
    if path is None:
        yield
        return
    with path.open("r+b") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _shift(seconds: float) -> None:
    """Let the clock of the commands be ahead: to prove that nothing depends on the date."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)


def main() -> None:
    """Run the cases that a file names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ahead", type=float, default=0.0)
    parser.add_argument("--below", type=Path)
    asked = parser.parse_args()
    cases = [Case.from_json(line) for line in asked.cases.read_text().splitlines()]
    os.umask(0o022)
    run = entry_point()
    for name in sorted({m.partition("/")[0] for case in cases for m in case.members}):
        corpus.archive(name)
    if asked.ahead:
        _shift(asked.ahead)
    memory = Path("/dev/shm")
    fast = str(memory) if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="n", dir=asked.below or fast) as roots:
        Driver(run, Path(roots)).run_all(cases, asked.results, asked.jobs)


if __name__ == "__main__":
    main()
