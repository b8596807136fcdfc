"""Runs command lines in forks of a process that has imported the command line already.

A `Driver` keeps one such process. Every command runs in a fork of it, with its own directory,
environment and files for output, so that nothing of one run is left for the next; what it costs is
the fork. Depends on the entry point of `sluicegate_cli` only: which modules a command needs is
learned from the forks that ran before.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

_PACKAGES = ("sluicegate", "sluicegate_cli")


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a command: its exit code and what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document that it printed."""
        found: dict[str, Any] = json.loads(self.stdout)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The JSON object of its error, after whatever notes came first."""
        found: dict[str, Any] = json.loads(self.stderr[self.stderr.index("{") :])
        return found


class Driver:
    """A process that runs command lines, one after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(
        self,
        *words: str | Path,
        cwd: Path,
        seconds: int = 300,
        input: str = "",
        environment: Mapping[str, str] | None = None,
        **variables: str,
    ) -> Done:
        """Run `sluicegate WORDS…` in a directory, without a terminal; kill it after its time.

        `environment` is all it gets. Without it, it gets what this process has, but no settings of
        Sluicegate, and `variables`.
        """
        assert self._process.stdin
        assert self._process.stdout
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SG_") and k != "NO_COLOR"}
        asked = {
            "words": [str(word) for word in words],
            "cwd": str(cwd),
            "seconds": seconds,
            "input": input,
            "environment": kept | variables if environment is None else dict(environment),
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that runs the commands has ended"
        return Done(**json.loads(answer))


@contextmanager
def driver(*, apart: bool = False) -> Iterator[Driver]:
    """A driver for the length of a `with` block; `apart` from all other processes, if it can be."""
    process = subprocess.Popen(
        [*(apart_from_others() if apart else []), sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Driver(process)
    finally:
        process.communicate(timeout=60)


def apart_from_others() -> list[str]:
    """What starts a program where it sees no other processes, if this machine lets us.

    A command that changes a checkpoint looks at every JVM of the host. Those of other tests would
    cost it half a second each time, and could be taken for writers.
    """
    words = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    try:
        probe = subprocess.run([*words, "true"], capture_output=True, check=False)
    except OSError:
        return []
    return words if probe.returncode == 0 else []


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer every line of `requests` until there is none."""
    import_module("sluicegate_cli.shell")
    import_module("sluicegate_cli.__main__")
    for line in requests:
        asked = json.loads(line)
        with (
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
            tempfile.TemporaryFile("w+") as modules,
        ):
            pid = os.fork()
            if pid == 0:
                _run(asked, out, err, modules)
            _, status = os.waitpid(pid, 0)
            for stream in (out, err, modules):
                stream.seek(0)
            done = Done(os.waitstatus_to_exitcode(status), out.read(), err.read())
            for name in modules.read().split():
                import_module(name)
        answer = {"code": done.code, "stdout": done.stdout, "stderr": done.stderr}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _run(asked: dict[str, Any], out: IO[str], err: IO[str], modules: IO[str]) -> None:
    """In the fork: be the command, and report the modules it took."""
    code = 1
    try:
        # Not closed: it may be descriptor 0 itself, if the parent has none.
        os.dup2(_given(asked["input"]), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        # As Python has them when it starts.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(asked["seconds"])
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        sys.argv = ["sluicegate", *asked["words"]]
        code = import_module("sluicegate_cli.__main__").main()
        sys.stdout.flush()
        sys.stderr.flush()
        names = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
        modules.write("\n".join(names))
        modules.flush()
    except BaseException:  # noqa: BLE001 - a fork must not return into its parent's code
        os.write(err.fileno(), traceback.format_exc().encode())
    finally:
        os._exit(code)


def _given(text: str) -> int:
    """Return a descriptor to read the text from."""
    if not text:
        return os.open(os.devnull, os.O_RDONLY)
    stream = tempfile.TemporaryFile("w+b", buffering=0)  # noqa: SIM115  # the fork ends with it
    stream.write(text.encode())
    stream.seek(0)
    return os.dup(stream.fileno())


if __name__ == "__main__":
    serve(sys.stdin, sys.stdout)
