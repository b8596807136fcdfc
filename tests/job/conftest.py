"""One Spark session for all tests that need one: starting a JVM takes longer than they do."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.exactly_once import CONFS


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark with two cores."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in CONFS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    with warnings.catch_warnings():
        # Sockets of py4j, which it leaves to be collected.
        warnings.simplefilter("ignore", ResourceWarning)
        session.stop()
