"""Durable storage: the interface, local files, and a wrapper for dry runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from sluicegate.errors import UnsupportedFormat, UsageError
from sluicegate.storage.append import append_line
from sluicegate.storage.base import (
    DEFAULT_LIMIT,
    Capabilities,
    Entry,
    Kind,
    Stat,
    Storage,
    split_key,
    validate_name,
)
from sluicegate.storage.local import LocalStorage
from sluicegate.storage.readonly import ReadOnlyStorage

__all__ = [
    "BACKENDS",
    "DEFAULT_LIMIT",
    "Capabilities",
    "Entry",
    "Kind",
    "LocalStorage",
    "ReadOnlyStorage",
    "Stat",
    "Storage",
    "append_line",
    "canonical_uri",
    "joined_uri",
    "local_root",
    "open_beside",
    "open_storage",
    "split_key",
    "validate_name",
]

# At least two letters, so that a Windows drive does not look like a scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//)?")


def local_root(uri: str) -> Path:
    """The path of a URI or plain path; Spark prints paths as `file:/x`."""
    scheme = _scheme(uri)
    if scheme is None:
        return _path(uri, uri)
    if scheme == "file":
        return _file_path(uri)
    raise _unsupported(scheme, uri)


def open_storage(uri: str, *, read_only: bool = False, create: bool = False) -> Storage:
    """The storage at a URI; with `read_only` every write is refused by the storage itself.

    With `create` it is created first, durably, if it is missing.
    """
    scheme = _scheme(uri) or "file"
    if scheme not in BACKENDS:
        raise _unsupported(scheme, uri)
    storage = BACKENDS[scheme](uri, create)
    return ReadOnlyStorage(storage) if read_only else storage


def open_beside(uri: str, *, read_only: bool = False) -> tuple[Storage, str]:
    """The storage that holds the file at a URI, and its key there."""
    above, _, name = canonical_uri(uri).rpartition("/")
    return open_storage(above or "/", read_only=read_only), name


def canonical_uri(uri: str) -> str:
    """A URI that does not depend on the current directory, for records and plans."""
    if _scheme(uri) in (None, "file"):
        return str(local_root(uri).absolute())
    return uri.rstrip("/")


def joined_uri(uri: str, name: str) -> str:
    """The URI of a name below another."""
    if _scheme(uri) in (None, "file"):
        return str(local_root(uri) / name)
    return f"{uri.rstrip('/')}/{name}"


def _open_local(uri: str, create: bool) -> Storage:
    root = local_root(uri)
    return LocalStorage.create(root) if create else LocalStorage(root)


BACKENDS: dict[str, Callable[[str, bool], Storage]] = {"file": _open_local}
"""Scheme → function that opens its storage, from the URI and whether to create it.

A plain path has the scheme `file`.
"""


def _scheme(uri: str) -> str | None:
    found = _SCHEME.match(uri)
    if found is None:
        return None
    scheme = found[1].lower()
    return scheme if found[2] or scheme == "file" else None


def _unsupported(scheme: str, uri: str) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"{scheme}:// storage is not supported by this release: {uri}",
        hint="copy it to a local or mounted directory and name that path",
    )


def _file_path(uri: str) -> Path:
    from urllib.parse import unquote  # here, because it costs start-up time and is rarely needed

    path = unquote(uri[len("file:") :])
    if path.startswith("//"):
        host, slash, rest = path[2:].partition("/")
        if host not in ("", "localhost"):
            raise UsageError(
                f"{uri} names the host {host!r}, but files are read on this machine",
                hint=f"write file:///{host}{slash}{rest} if {host!r} is a directory",
            )
        path = slash + rest
    if not path.startswith("/"):
        raise UsageError(f"{uri} is not absolute", hint="write file:///absolute/path")
    return _path(path, uri)


def _path(text: str, shown: str) -> Path:
    if not text:
        raise UsageError("the path is empty", hint="name a directory or file")
    if "\0" in text:
        raise UsageError(f"{shown!a} contains a NUL character", hint="check the path")
    try:
        return Path(text).expanduser()
    except RuntimeError as e:
        raise UsageError(f"{shown}: {e}", hint="write the directory out in full") from e
