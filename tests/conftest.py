"""Fixtures for everything: the real `sluicegate` command, in a clean environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

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

Sg = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sg(tmp_path: Path) -> Sg:
    """Runs `sluicegate ARGS…` as a process, by default in `tmp_path`, without a terminal.

    Documents that it prints must have the shape that is documented.
    """
    # Here, since processes of tests import this file, too, without the path of pytest.
    from tests.docs.documents import heed

    script = Path(sys.executable).with_name("sluicegate")

    def run(
        *arguments: str, cwd: Path = tmp_path, input: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SG_") and k != "NO_COLOR"}
        done = subprocess.run(
            [script, *arguments],
            cwd=cwd,
            env=kept | variables,
            input=input,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        heed(arguments, done.stdout + done.stderr)
        return done

    return run
