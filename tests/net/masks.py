"""Volatile values become placeholders; everything else stays as it was printed or written.

What is volatile: moments after those of the corpus (the clock was read), ages, the process,
user and host of this run, and where things are on this machine. Ids that are drawn at random, and
digests of bytes that hold any of these, are left to `tests.net.tokens`.
"""

from __future__ import annotations

import getpass
import os
import pwd
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.net import corpus

_ISO = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
# Seconds with or without a fraction, milliseconds, microseconds, nanoseconds.
_EPOCH = re.compile(r"(?<!\w)(?<!\d\.)(?:\d{10}(?:\.\d+)?|\d{13}|\d{16}|\d{19})(?!\w)")
_COMPACT = re.compile(r"(?<!\d)\d{8}T?-?\d{6}(?:Z|(?=\D)|$)")
_SPAN = r"\d[\d,.]* (?:d|h|min|s|ms)"
_AGE = re.compile(rf"{_SPAN}(?: {_SPAN})? ago\b|\bin the future\b")
# Nothing in the corpus itself took a hundred days: such a span is one until now.
_LONG = re.compile(r"\b[1-9]\d{2,} d(?: \d+ h)?\b")
_SINCE = re.compile(rf"(\bsince \S+) \({_SPAN}(?: {_SPAN})?\)")
# Samples of Prometheus that are spans or moments.
_METRIC = re.compile(r"^(\w*(?:seconds|timestamp)\w*(?:\{[^}\n]*\})?) \S+$", re.MULTILINE)
_PID = re.compile(r"\bpid \d+")
# 2013: nothing in the corpus is so old. A case that goes 9000 days back from now gets there.
_LONG_AGO = 1_357_000_000
_UNITS = (1, 1e3, 1e6, 1e9)

VOLATILE_FIELDS = {
    "age_seconds": "until now",
    "seconds": "how long the command took",
    "duration_seconds": "how long the command took",
    "lag_seconds": "until now",
}
"""Numbers that no pattern can tell from others, by the name of their field, and the reason."""

MACHINE_LINES = (
    # Other tests run Spark on this machine; the commands mention such JVMs as "not known".
    "it runs a streaming query, and nothing shows which",
    # Only root may look into the processes of other users.
    "processes of other users",
)
"""Lines of evidence that tell of other processes of this machine; they are left out."""


@dataclass(frozen=True, slots=True)
class Masks:
    """Masks for one case, which ran in `root`."""

    root: str

    def document(self, value: Any, key: str = "") -> Any:
        """A JSON value with placeholders; `key` is the field it is in."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return self._mapping(value)
            case list() | tuple():
                return [self.document(item, key) for item in value if not _is_of_machine(item)]
            case bytes():
                return f"bytes {value.hex()}"
        return _mask_number(value, key)

    def text(self, text: str) -> str:
        """A text with placeholders."""
        for real, placeholder in _places(self.root):
            text = text.replace(real, placeholder)
        text = _ISO.sub(_mask_iso, _own(text))
        text = _SINCE.sub(r"\1 (<age>)", _AGE.sub("<age>", text))
        text = _METRIC.sub(r"\1 <number>", _LONG.sub("<age>", text))
        text = _COMPACT.sub(_mask_compact, text)
        return _EPOCH.sub(_mask_epoch, text)

    def _mapping(self, value: Mapping[Any, Any]) -> dict[str, Any]:
        mine = value.get("host") == _HOST
        return {
            self.text(str(key)): f"<my {key}>"
            if mine and key in ("pid", "started", "user", "host")
            else self.document(item, str(key))
            for key, item in value.items()
        }


def without_machine(printed: str) -> str:
    """What was printed, without lines about other processes of this machine."""
    if not any(line in printed for line in MACHINE_LINES):
        return printed
    return "".join(line for line in printed.splitlines(keepends=True) if not _is_of_machine(line))


def _is_of_machine(item: object) -> bool:
    return isinstance(item, str) and any(line in item for line in MACHINE_LINES)


def _mask_number(value: Any, key: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if key in VOLATILE_FIELDS:
        return "<number>"
    return "<time>" if _is_recent(value) else value


def _is_recent(number: float) -> bool:
    """Whether a number is a moment after the corpus, in whatever unit; not centuries later."""
    edge = corpus.newest()
    return any(edge * unit < number < 4 * edge * unit for unit in _UNITS)


def _mask_epoch(found: re.Match[str]) -> str:
    return "<time>" if _is_recent(float(found[0])) else found[0]


def _mask_iso(found: re.Match[str]) -> str:
    try:
        moment = datetime.fromisoformat(found[0]).timestamp()
    except ValueError:
        return found[0]
    return "<time>" if moment > corpus.newest() or moment < _LONG_AGO else found[0]


def _mask_compact(found: re.Match[str]) -> str:
    digits = re.sub(r"\D", "", found[0])
    iso = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}T{digits[8:10]}:{digits[10:12]}:{digits[12:]}Z"
    return "<time>" if _mask_iso_text(iso) else found[0]


def _mask_iso_text(iso: str) -> bool:
    found = _ISO.fullmatch(iso)
    return found is not None and _mask_iso(found) == "<time>"


_HOST = socket.gethostname()


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()


_ME = f"{_user()}@{_HOST}"


def _own(text: str) -> str:
    """Without the user, host and process of this run; those of the corpus stay."""
    if _ME in text:
        parts = text.split(_ME)
        text = parts[0] + "".join("<me>" + _PID.sub("pid <pid>", part, 1) for part in parts[1:])
    return text


def _places(root: str) -> list[tuple[str, str]]:
    """Where things are on this machine, longest first."""
    checkout = str(Path(__file__).parents[2])
    return [(root, "<root>"), (sys.prefix, "<prefix>"), (checkout, "<checkout>")]
