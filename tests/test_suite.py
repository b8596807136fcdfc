"""What the suite promises about itself, wherever it is started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_ASK = """
import signal, subprocess, sys
import tests.conftest
child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)
subprocess.run([sys.executable, "-c", child], check=True)
"""


def _ignore() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_signals_that_were_ignored_work_again() -> None:
    asked = subprocess.run(
        [sys.executable, "-c", _ASK],
        cwd=ROOT,
        preexec_fn=_ignore,
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.split() == ["True", "True"]
