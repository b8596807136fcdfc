"""Checkpoints, stores, and processes that look like Spark's, without the cost of a JVM."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Position

APPS = Path(__file__).parent / "apps"
QUERY = "6fdd6a2c-0000-4000-8000-000000000000"
LONG_AGO = 1_794_000_000

FakeJvm = Callable[..., "subprocess.Popen[bytes]"]


def write_checkpoint(root: Path, batches: int = 4, *, last_committed: bool = False) -> Path:
    """A checkpoint of a Kafka query, last written to long ago."""
    for log in ("offsets", "commits"):
        (root / log).mkdir(parents=True, exist_ok=True)
    for batch in range(batches):
        head = '{"batchWatermarkMs":0,"batchTimestampMs":1794800000000,"conf":{}}'
        offset = f'{{"orders":{{"0":{100 * batch},"1":{10 * batch}}}}}'
        (root / "offsets" / str(batch)).write_text(f"v1\n{head}\n{offset}")
        if batch < batches - 1 or last_committed:
            (root / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (root / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    make_old(root)
    return root


def make_old(root: Path, when: float = LONG_AGO) -> None:
    for path in (*root.rglob("*"), root):
        os.utime(path, (when, when))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """With batch 3 unfinished."""
    return write_checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """With a consumer `billing` at two positions."""
    made = LockFileOffsetStore.create(str(tmp_path / "store"))
    made.save("billing", Position("orders", 0, 41))
    made.save("billing", Position("orders", 1, 7))
    return tmp_path / "store"


_JVM = """
import sys, time
sys.stdout.write("up\\n"); sys.stdout.flush()
{body}
time.sleep(60)
"""


@pytest.fixture
def jvm(tmp_path: Path) -> Iterator[FakeJvm]:
    """Starts processes that call themselves `java`; `thread` names their main thread."""
    running: list[subprocess.Popen[bytes]] = []

    def start(
        *words: str, thread: str = "", body: str = "", cwd: Path = tmp_path, **variables: str
    ) -> subprocess.Popen[bytes]:
        if thread:
            body = f"open('/proc/self/comm', 'w').write({thread!r}[:15])\n{body}"
        process = subprocess.Popen(
            ["java", "-c", _JVM.format(body=body), *words],
            executable=sys.executable,
            stdout=subprocess.PIPE,
            cwd=cwd,
            # Python finds its library by its own name, which is not java.
            env=dict(os.environ) | {"PYTHONHOME": sys.base_prefix} | variables,
        )
        running.append(process)
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.2 if thread or body else 0)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


_LAUNCHER = """#!{python}
# Stands for spark-submit and the JVM: starts the application as its child, and ends as it ends.
import os, subprocess, sys
words = sys.argv[1:]
confs = [words[i + 1] for i, word in enumerate(words) if word == "--conf"]
app = next(i for i, word in enumerate(words) if word.endswith((".py", ".jar")))
print("log of the launcher", file=sys.stderr, flush=True)
os.environ.update(CONFS="\\n".join(confs), LAUNCHER=str(os.getpid()))
code = subprocess.run([sys.executable, *words[app:]]).returncode
sys.exit(code if code >= 0 else 128 - code)
"""


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """A spark-submit that needs no Spark."""
    path = tmp_path / "bin" / "spark-submit"
    path.parent.mkdir()
    path.write_text(_LAUNCHER.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
