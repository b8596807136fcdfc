"""Settings that must not stand on a command line: a properties file only the job can read.

`--properties-file` replaces spark-defaults.conf instead of adding to it (an option to have both
exists since Spark 4.0 only), so its text is put in front of ours; of a key that stands in both,
Java takes the last. The file is in memory where the system can do that: nothing is left behind,
however the job ends.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sluicegate.errors import StorageFailed
from sluicegate.spark.submit.keys import Setting

_ESCAPED = re.compile(r"[\\:=#! \t\n\r\f]")
_LINE = re.compile(r"\s*([^\s#!=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*)")
_LETTERS = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


@dataclass(frozen=True, slots=True)
class PrivateFile:
    """Where a process that inherits the descriptors can read the settings."""

    path: str
    descriptors: tuple[int, ...] = ()


@contextmanager
def private_file(
    settings: Iterable[Setting], defaults: Path | None
) -> Iterator[PrivateFile | None]:
    """The file for these settings, as long as the block lasts; None if there are none."""
    chosen = tuple(settings)
    if not chosen:
        yield None
        return
    data = _read(defaults) + render(chosen).encode("ascii")
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("spark.properties", os.MFD_CLOEXEC)
        try:
            os.write(fd, data)
            # Opening this name opens the file anew, from its start, in any process that has it.
            yield PrivateFile(f"/proc/self/fd/{fd}", (fd,))
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile(prefix="sluicegate-", suffix=".properties") as stream:
        stream.write(data)
        stream.flush()
        yield PrivateFile(stream.name)


def render(settings: Iterable[Setting]) -> str:
    """Settings as a Java properties file, in ASCII."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in settings)


def _escape(text: str) -> str:
    escaped = _ESCAPED.sub(lambda m: _LETTERS.get(m[0], "\\" + m[0]), text)
    return "".join(c if c.isascii() else _unicode(c) for c in escaped)


def _unicode(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in pairs)


def settings_in(defaults: Path | None) -> dict[str, str]:
    """The settings that spark-defaults.conf makes, as far as they stand on one line each."""
    lines = _read(defaults).decode("latin-1").splitlines()
    found = (_LINE.fullmatch(line) for line in lines)
    return {match[1]: match[2].strip() for match in found if match}


def _read(defaults: Path | None) -> bytes:
    if defaults is None:
        return b""
    try:
        return defaults.read_bytes() + b"\n"
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise StorageFailed(f"{defaults}: {reason}", place=str(defaults)) from e
