"""Producers in processes of their own, which die at random and are started again."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from sluicegate.producer.log_producer import LogProducer
from tests.lab.environments import ROOT

_LIFE = (1.5, 5.0)


class Producers:
    """As long as the block lasts, they produce; afterwards nothing is owed to the log."""

    def __init__(self, log: str, directory: Path, count: int = 2, seed: int = 0) -> None:
        self._log = log
        self._directory = directory
        self._names = [f"producer-{number}" for number in range(count)]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._chance = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._stir)
        self.kills = 0

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        for name in self._names:
            self._start(name)
        self._thread.start()
        return self

    def __exit__(
        self, _type: object, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        for name in self._names:
            self._kill(name)
            LogProducer.open(self._log, self._directory / name, name).close()

    def _stir(self) -> None:
        while not self._over.wait(self._chance.uniform(*_LIFE)):
            name = self._chance.choice(self._names)
            self._kill(name)
            self._start(name)

    def _start(self, name: str) -> None:
        words = ["-m", "tests.lab.exactly_once_producer", self._log]
        words += [str(self._directory / name), name, str(self.kills)]
        self._running[name] = subprocess.Popen([sys.executable, *words], cwd=ROOT)

    def _kill(self, name: str) -> None:
        process = self._running[name]
        if process.poll() is not None:
            self._over.set()
            raise RuntimeError(f"{name} ended by itself, with {process.returncode}")
        process.kill()
        process.wait()
        self.kills += 1
