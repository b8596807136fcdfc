"""Turns bytes of any kind of log into clean lines, in bounded memory."""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import json
import os
import re
import shlex
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sluicegate.errors import Corrupt, NotFound, StorageFailed, UnsupportedFormat, UsageError
from sluicegate.units import command

# Longer lines are cut. Stack traces folded into one line of JSON are about a tenth of this.
MAX_LINE = 256 * 1024
STANDARD_INPUT = "-"
_PEEK = 8192
_PROGRESS_EVERY = 10_000
_GZIP = b"\x1f\x8b"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,32}[@-~]")
_MESSAGES = ("msg", "message", "log")
_T = TypeVar("_T")


@contextmanager
def opened(log: str) -> Iterator[io.BufferedReader]:
    """The bytes of a log: a file, or standard input if it is `-`."""
    if log == STANDARD_INPUT:
        yield sys.stdin.buffer  # type: ignore[misc]
        return
    path = Path(log)
    if path.is_dir():
        hint = f"if it is a checkpoint: {command('checkpoint', 'verify', log)}"
        raise UsageError(f"{log} is a directory, not a log", hint=hint)
    try:
        stream = path.open("rb")
    except FileNotFoundError as e:
        hint = "name the driver's log, or use - and paste the error"
        raise NotFound(f"{log} does not exist", hint=hint, place=log) from e
    except OSError as e:
        raise StorageFailed(f"{log}: {(e.strerror or str(e)).lower()}", place=log) from e
    with stream:
        yield stream


def read_lines(
    stream: io.BufferedReader,
    name: str,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Iterator[str]:
    """The lines of a log: plain or gzipped, UTF-8, UTF-16 or nearly; no other binary file."""
    size, packed = _size(stream), stream
    head = _translated(lambda: stream.peek(_PEEK)[:_PEEK], name)
    if head.startswith(_GZIP):
        stream = io.BufferedReader(gzip.GzipFile(fileobj=stream))
        head = _translated(lambda: stream.peek(_PEEK)[:_PEEK], name)
    encoding = "utf-16" if head.startswith(_UTF16) else "utf-8-sig"
    if b"\0" in head and encoding != "utf-16":
        raise UnsupportedFormat(
            f"{name} is a binary file, not a log",
            hint=f"use the driver's log as text: {command('explain', 'driver.log')}",
            place=name,
        )
    text = io.TextIOWrapper(stream, encoding, errors="backslashreplace")
    try:
        for number in itertools.count(1):
            if size and number % _PROGRESS_EVERY == 0:
                on_progress(packed.tell(), size)
            line = _translated(lambda: text.readline(MAX_LINE), name)
            if not line:
                return
            yield line
            while line and not line.endswith("\n"):
                line = _translated(lambda: text.readline(MAX_LINE), name)
    finally:
        # Otherwise it would close the caller's stream.
        text.detach()


def clean(line: str) -> str:
    """The line without colours and white space at its end."""
    return (_ANSI.sub("", line) if "\x1b" in line else line).rstrip()


def unfold(line: str) -> list[str]:
    """The lines inside a line of JSON, as Spark's structured logging or a container writes it."""
    if not line.startswith("{") or not any(f'"{key}"' in line for key in _MESSAGES):
        return [line]
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return [line]
    message = next((record[key] for key in _MESSAGES if isinstance(record.get(key), str)), "")
    lines = str(message).splitlines() or [""]
    context = _mapping(record.get("context"))
    lines[0] = " ".join(
        part
        for part in (
            str(record.get("level", "")),
            *(f"[queryId = {context[key]}]" for key in ("QUERY_ID", "query_id") if key in context),
            lines[0],
        )
        if part
    )
    return [clean(each) for each in (*lines, *_thrown(_mapping(record.get("exception"))))]


def _thrown(exception: dict[str, Any]) -> Iterator[str]:
    if not exception:
        return
    yield from f"{exception.get('class')}: {exception.get('msg')}".splitlines()
    frames = exception.get("stacktrace")
    if isinstance(frames, str):
        yield from frames.splitlines()
    elif isinstance(frames, list):
        for frame in map(_mapping, frames):
            yield f"\tat {frame.get('class')}.{frame.get('method')}({frame.get('file')})"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _size(stream: io.BufferedReader) -> int:
    """The size of a regular file; 0 if the end is not known."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _translated(read: Callable[[], _T], name: str) -> _T:
    try:
        return read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        again = f"zcat {shlex.quote(name)} | {command('explain', '-')}"
        raise Corrupt(
            f"{name} cannot be unpacked: {e}",
            hint=f"unpack the intact part of it: {again}",
            place=name,
        ) from e
    except OSError as e:
        raise StorageFailed(f"{name}: {(e.strerror or str(e)).lower()}", place=name) from e
