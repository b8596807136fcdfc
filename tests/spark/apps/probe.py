"""Tells what it was given, without the cost of a Spark context: `probe.py KEY… [raise|exit]`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext


def main(*keys: str) -> None:
    SparkContext._ensure_initialized()
    conf = SparkConf()
    words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\0")
    settings = {key: conf.get(key) for key in keys}
    # What anybody on the machine can see.
    seen = [
        key for key, value in settings.items() if value and any(value in word for word in words)
    ]
    print(json.dumps({"settings": settings, "seen": seen}), flush=True)
    if keys[-1] == "raise":
        raise RuntimeError(f"cannot log in with {settings[keys[0]]} at jdbc://me:hunter22@db/x")
    if keys[-1] == "exit":
        sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
