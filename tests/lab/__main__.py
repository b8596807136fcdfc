"""What is too heavy for the test suite, in parts: `python -m tests.lab PART [--spark VERSION]`.

Each part takes an hour at the most; those that take longer in all keep what they have found out,
and go on from there the next time.
"""

from __future__ import annotations

import argparse
import runpy
import sys

PARTS = {
    "verdicts": ("tests.lab.table", "verify finds every known damage; docs/results/lab.md"),
    "repairs": ("tests.lab.mended_table", "repaired queries continue; docs/results/endings.md"),
    "exactly-once": ("tests.lab.exactly_once_table", "killed jobs; docs/results/exactly-once.md"),
    "versions": ("tests.lab.exactly_once_versions", "on every PySpark; docs/results/versions.md"),
    "oracle": ("tests.oracle", "every damage, judged by Spark; docs/results/oracle.md"),
    "net": ("tests.net.compare", "every command does what it did when it was recorded"),
}


def main(arguments: list[str]) -> int:
    """Run a part, or list them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--spark", metavar="VERSION")
    asked, more = parser.parse_known_args(arguments)
    if asked.part is None:
        print("which part? make lab PART=…\n")
        print("\n".join(f"  {name:<14}{summary}" for name, (_, summary) in PARTS.items()))
        return 2
    module = PARTS[asked.part][0]
    sys.argv = [module, *_chosen(asked.part, asked.spark), *more]
    runpy.run_module(module, run_name="__main__")
    return 0


def _chosen(part: str, version: str | None) -> list[str]:
    """Return how a part is given the version of Spark."""
    if version is None:
        return []
    named = ["--spark", version]
    return {"oracle": named, "versions": named, "repairs": [version]}.get(part, [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
