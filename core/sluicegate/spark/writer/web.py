"""What a Spark driver's own web UI says about its streaming queries.

It is the only thing outside the JVM that knows the id of a query, which is also in the file
`metadata` of its checkpoint. It lists queries that were stopped, too, as long as the JVM lives.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from sluicegate.spark.writer.proc import Proc, Process

_PATH = "/StreamingQuery/"
_PATIENCE = 3.0
_LISTENS = "0A"
_FIRST_PORT, _TRIES = 4040, 16
_PORT = re.compile(r"spark\.ui\.port=(\d{1,5})")
_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_RUN = re.compile(r"/StreamingQuery/statistics/?\?id=([0-9a-f-]{36})")
_COUNTS = re.compile(r"(?:Active|Completed) Streaming Queries \((\d{1,6})\)")
_MOST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Listing:
    """The queries that a UI lists: their ids and run ids; `is_whole` if none is left out."""

    port: int
    ids: frozenset[str]
    is_whole: bool


def ask(process: Process, proc: Proc) -> Listing | None:
    """What the UI of a JVM lists; None if it has none that answers."""
    # A container's ports are not ours, and another program may have the same one here.
    if proc.link(process.pid, "ns/net") != proc.link(os.getpid(), "ns/net"):
        return None
    for address, port in _ports(process, proc):
        page = _get(address, port)
        if page is not None and _COUNTS.search(page):
            count = sum(map(int, _COUNTS.findall(page)))
            # One link per run; with very many runs there are further pages.
            is_whole = len(set(_RUN.findall(page))) == count
            return Listing(port, frozenset(_ID.findall(page)), is_whole)
    return None


def _ports(process: Process, proc: Proc) -> list[tuple[str, int]]:
    """Where a UI of this JVM can listen; other ports speak other protocols and stay alone."""
    opened = proc.open_files(process.pid) or []
    sockets = {f.path for f in opened if f.path.startswith("socket:[")}
    wanted = {_FIRST_PORT} | {int(n) for word in process.words for n in _PORT.findall(word)}
    found = []
    for name in ("net/tcp", "net/tcp6"):
        for row in proc.table(process.pid, name):
            if len(row) > 9 and row[3] == _LISTENS and f"socket:[{row[9]}]" in sockets:
                host, _, port = row[1].rpartition(":")
                number = int(port, 16)
                if any(0 <= number - first <= _TRIES for first in wanted):
                    found.append((_address(host), number))
    return found


def _address(text: str) -> str:
    """The IPv4 address behind the kernel's notation; where it listens everywhere, this host."""
    last = bytes.fromhex(text[-8:])[::-1]
    return ".".join(map(str, last)) if any(last) else "127.0.0.1"


def _get(address: str, port: int) -> str | None:
    from http.client import HTTPConnection, HTTPException  # rarely needed, and slow to import

    connection = HTTPConnection(address, port, timeout=_PATIENCE)
    try:
        connection.request("GET", _PATH)
        answer = connection.getresponse()
        text = answer.read(_MOST).decode(errors="replace")
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    return text if answer.status == 200 else None
