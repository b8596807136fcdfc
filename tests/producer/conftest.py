"""A place for producers, and one that is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sluicegate.producer.producer import IdempotentProducer
from tests.producer.producers import ID


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory where there is such a place: the labs decide what survives, so fsyncs only cost."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


@pytest.fixture
def home(scratch: Path) -> Path:
    """A producer that was made and closed."""
    IdempotentProducer.create(scratch / "producer", ID).close()
    return scratch / "producer"
