"""Fixtures for everything: the real `sluicegate` command, in a clean environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.drive import Driver, driver

settings.register_profile("default", deadline=None)
settings.load_profile("default")

# What a shell, nohup or a CI runner ignores is inherited by every process that a test starts, and
# then a test that interrupts one waits in vain.
_INHERITED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def reset_signals() -> None:
    """Let signals do what they do in a terminal, whatever the suite was started from."""
    for number in _INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number is signal.SIGINT
            signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INHERITED)


reset_signals()

_AT_START = dict(os.environ)

Sg = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def _forks() -> Iterator[tuple[Driver, threading.Lock]]:
    with driver() as started:
        yield started, threading.Lock()


@pytest.fixture
def sg(tmp_path: Path, _forks: tuple[Driver, threading.Lock]) -> Sg:
    """Runs `sluicegate ARGS…` as a process, by default in `tmp_path`, without a terminal.

    Documents that it prints must have the shape that is documented. The process is a fork of one
    that has imported the command line, unless one runs already or Python must see a variable when
    it starts.
    """
    # Here, since processes of tests import this file, too, without the path of pytest.
    from tests.docs.documents import heed

    forked, lock = _forks

    def run(
        *arguments: str, cwd: Path = tmp_path, input: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SG_") and k != "NO_COLOR"}
        environment = kept | variables
        changed = {k for k in environment | _AT_START if environment.get(k) != _AT_START.get(k)}
        is_free = not any(_of_python(k) for k in changed) and lock.acquire(blocking=False)
        if is_free:
            try:
                end = forked(*arguments, cwd=cwd, input=input, environment=environment)
            finally:
                lock.release()
            done = subprocess.CompletedProcess(arguments, end.code, end.stdout, end.stderr)
        else:
            done = _started(arguments, cwd, input, environment)
        heed(arguments, done.stdout + done.stderr)
        return done

    return run


def _of_python(variable: str) -> bool:
    return variable.startswith(("PYTHON", "LC_", "LANG", "TZ"))


def _started(
    arguments: tuple[str, ...], cwd: Path, input: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("sluicegate")
    return subprocess.run(
        [script, *arguments],
        cwd=cwd,
        env=environment,
        input=input,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
