"""Directories of files as a sink."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest

from sluicegate.sinks.base import DATA, KINDS, File, Output, Sink
from sluicegate.sinks.files import FileSink, open_sink
from tests.contracts.sink import SinkContract


class TestFiles(SinkContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[[], Sink]:
        def opened() -> FileSink:
            return open_sink(tmp_path / "sink", "a stream", may_create=lambda: None)

        return opened

    @pytest.fixture
    def write(self) -> Callable[[Sink, str, str], Output]:
        def write(sink: Sink, nonce: str, text: str) -> Output:
            files = {}
            for kind in KINDS:
                path = Path(sink.attempts(nonce)) / f"part-{kind}.parquet"
                path.write_text(text)
                digest = blake2b(text.encode(), digest_size=32).hexdigest()
                files[kind] = (File(path.name, len(text), 1, digest),)
            return Output(files)

        return write

    @pytest.fixture
    def visible(self, tmp_path: Path) -> Callable[[], list[str]]:
        def visible() -> list[str]:
            found = (tmp_path / "sink" / DATA).glob("[!_.]*/[!_.]*")
            return sorted(path.read_text() for path in found)

        return visible
