"""A real Spark standalone cluster on this machine: a master and workers, each a process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from importlib import util
from pathlib import Path
from types import TracebackType
from typing import Self

from sluicegate.liveness.proc import Proc

_PATIENCE = 60.0
_DEPLOY = "org.apache.spark.deploy"


class Cluster:
    """As long as the block lasts: a master, and two workers of one core."""

    def __init__(self, root: Path, workers: int = 2) -> None:
        self._root = root
        self._workers: list[subprocess.Popen[bytes]] = []
        self._count = workers
        self._port, self._web = _free_port(), _free_port()
        self._master: subprocess.Popen[bytes] | None = None
        self._environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._root.mkdir(parents=True)
        words = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web)]
        self._master = self._start("master", f"{_DEPLOY}.master.Master", *words)
        for _ in range(self._count):
            self.start_worker()
        deadline = time.monotonic() + _PATIENCE
        while self._alive() < self._count:
            if time.monotonic() > deadline:
                raise TimeoutError("the workers did not find their master")
            time.sleep(0.2)
        return self

    def __exit__(
        self, _type: object, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for process in (*self._workers, self._master):
            if process:
                _kill_tree(process)

    def start_worker(self) -> None:
        """One more worker."""
        number = len(self._workers)
        words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        words += ["--work-dir", str(self._root / f"work-{number}"), self.url]
        worker = self._start(f"worker-{number}", f"{_DEPLOY}.worker.Worker", *words)
        self._workers.append(worker)

    def kill_worker(self) -> None:
        """Kill the first worker that lives, with its executors."""
        worker = next(each for each in self._workers if each.poll() is None)
        assert len(_below(worker.pid)) > 0, "it has an executor"
        _kill_tree(worker)

    def _start(self, name: str, main: str, *words: str) -> subprocess.Popen[bytes]:
        found = util.find_spec("pyspark")
        assert found
        assert found.submodule_search_locations
        program = Path(found.submodule_search_locations[0]) / "bin" / "spark-class"
        with (self._root / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [program, main, *words], env=self._environment, stdout=log, stderr=log
            )

    def _alive(self) -> int:
        page = f"http://127.0.0.1:{self._web}/json/"
        with suppress(OSError), urllib.request.urlopen(page) as answer:
            return int(json.load(answer)["aliveworkers"])
        return 0


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    for pid in [process.pid, *_below(process.pid)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _below(pid: int) -> list[int]:
    everybody = list(Proc().processes())
    found: list[int] = []
    parents = {pid}
    while more := [p.pid for p in everybody if p.parent in parents and p.pid not in found]:
        found += more
        parents = set(more)
    return found


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
