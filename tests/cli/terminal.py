"""A real terminal for the command to run in."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pexpect

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """`sluicegate ARGS…` on a pseudo-terminal of the given width."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        columns: int = 100,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        ours = ("COLUMNS", "LINES", "NO_COLOR")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SG_") and k not in ours}
        self.process = pexpect.spawn(
            str(Path(sys.executable).with_name("sluicegate")),
            list(arguments),
            cwd=str(cwd),
            env=kept | {"TERM": "xterm"} | dict(env),
            dimensions=(50, columns),
            timeout=60,
            encoding="utf-8",
        )
        self.process.delaybeforesend = None

    def answer(self, question: str, reply: str) -> None:
        """Wait for a question and type a reply."""
        self.process.expect_exact(question)
        self.process.sendline(reply)

    def finish(self) -> tuple[int, str]:
        """The exit code and everything printed since the last question."""
        self.process.expect(pexpect.EOF)
        text = str(self.process.before).replace("\r\n", "\n")
        self.process.close()
        code = self.process.exitstatus
        return (code if code is not None else -1), text

    def finish_plain(self) -> tuple[int, str]:
        """As `finish`, without colours and trailing blanks."""
        code, text = self.finish()
        lines = _COLOUR.sub("", text).splitlines()
        return code, "\n".join(line.rstrip() for line in lines)
