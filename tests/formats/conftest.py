"""Fixtures for the old formats: the command line, and a directory to unpack trees into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.drive import Driver, driver


@pytest.fixture(scope="session")
def run() -> Iterator[Driver]:
    """Runs `sluicegate WORDS…` in a fork, in a directory."""
    with driver(apart=True) as started:
        yield started


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory, in memory where there is such a place: what fsync costs is not the question."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)
