"""All cases: which command lines run on which members of the corpus; and the suite's sample.

Not everything of three commands is the same on every machine. `demo` runs Spark and kills it at
random: only its usage errors are here. `submit` starts Spark: only refusals and `--dry-run`.
`doctor` describes this machine: only its help is here. `--read-data-subset 50%` is not here: it
reads a random half.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tests.net import corpus
from tests.net.case import Case
from tests.net.tables import one_each, sections, step, together, with_words

EVERY = 12
"""The test suite runs one of so many cases; `python -m tests.net.compare` runs all."""
SPARK = ("spark-3.5.9", "spark-4.0.5", "spark-4.3.0")
# Which further sections run on which gated streams.
_STREAMS = (
    ("dedup", "dedup"),
    ("nodes", "nodes"),
    ("uneven", "nodes"),
    ("log", "log"),
    ("log-recreated", "log"),
    ("log-source-missing", "log"),
    ("log-unpublished", "log"),
    ("log-not-begun", "not_begun"),
    ("home", "home"),
    ("home-read-only", "home"),
    ("home-reasons", "home"),
    ("imported", "import"),
    ("imported-over", "import"),
)
_STORES = ("healthy", "legacy", "numbers", "named")
_NOTHING = ("empty", "full", "text.txt", "image.bin", "missing", "http://example.test/x")


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case, in a fixed order; their names are unique."""
    found = (*_stores(), *_streams(), *_spark(), *_damaged(), *_kafka(), *_files())
    names: set[str] = set()
    for case in found:
        assert case.name not in names, f"two cases of the name {case.name}"
        names.add(case.name)
    return found


@cache
def sample() -> tuple[Case, ...]:
    """What the test suite runs: every so many cases, and those without which a member is left out.

    A case that only reads runs a score of command lines, so it is in the sample for every member,
    of the older versions of Spark for every third one. Every damage is, with one checkpoint.
    """
    damaged: dict[str, list[Case]] = {}
    for case in all_cases():
        damaged.setdefault(case.members[0].partition("!")[2], []).append(case)
    del damaged[""]
    chosen = {cases[at % len(cases)].name for at, cases in enumerate(damaged.values())}
    for number, case in enumerate(all_cases()):
        is_old = case.area in SPARK[:-1] and number % 3
        is_reading = case.area == "help" or (case.name.endswith(": reading") and not is_old)
        if is_reading or (number % EVERY == 0 and "!" not in case.members[0]):
            chosen.add(case.name)
    return tuple(case for case in all_cases() if case.name in chosen)


def _stores() -> Iterator[Case]:
    table = sections("stores")
    for member in corpus.archive("stores"):
        yield Case(f"{member}: reading", (member,), together(table["reads"]))
        yield from one_each(member, member, table["changes"])
    for name in _STORES:
        yield from one_each(f"stores/{name}, more", f"stores/{name}", table[name])
    damaged = "stores/legacy-damaged"
    yield from one_each(f"{damaged}, more", damaged, table["legacy"])
    locked = together(table["locked"])
    yield Case("stores/healthy: locked", ("stores/healthy",), locked, "store/billing.lock")


def _streams() -> Iterator[Case]:
    table = sections("streams")
    for member in corpus.archive("streams"):
        yield Case(f"{member}: reading", (member,), together(table["reads"]))
        yield from one_each(member, member, table["changes"])
    for name, section in _STREAMS:
        yield from one_each(f"streams/{name}, more", f"streams/{name}", table[section])


def _spark() -> Iterator[Case]:
    table = sections("spark")
    for version in SPARK:
        for member in corpus.archive(version):
            sink = _sink(member)
            reads = with_words(together(table["reads"]), sink=sink)
            yield Case(f"{member}: reading", (member,), reads)
            yield from one_each(member, member, table["changes"], sink=sink)
        # One without state and one with it.
        for recipe in ("stateless-parquet", "agg-hdfs"):
            member = f"{version}/{recipe}"
            yield from one_each(f"{member}, options", member, table["options"])
    both = ("spark-4.3.0/agg-hdfs", "spark-3.5.9/agg-hdfs")
    diff = step("checkpoint diff checkpoint ../../spark-3.5.9/agg-hdfs/checkpoint")
    yield Case("spark-4.3.0/and 3.5.9: checkpoint diff", both, (diff,))


def _damaged() -> Iterator[Case]:
    table = sections("spark")
    for member in corpus.damages():
        steps = with_words(together(table["damaged"]), sink=_sink(member))
        yield Case(f"damaged-{member}", (member,), steps)
        if "metadata-missing" in member:
            yield from one_each(f"damaged-{member}", member, table["lost_metadata"])


def _sink(member: str) -> str:
    return "--sink out" if "out" in corpus.member(member.partition("!")[0]) else ""


def _kafka() -> Iterator[Case]:
    yield from one_each("kafka/kafka", "files/kafka", sections("spark")["kafka"])


def _files() -> Iterator[Case]:
    table = sections("files")
    assignments = "files/assignments"
    for inner in sorted(corpus.member(assignments)):
        if inner.endswith((".txt", ".json")) and not inner.startswith("weights"):
            title = f"{assignments}/{inner}"
            yield from one_each(title, assignments, table["assignment"], file=inner)
    yield from one_each(f"{assignments}, more", assignments, table["more"])
    for inner in sorted(corpus.member("files/v1")):
        if inner.endswith(".bin"):
            yield from one_each(f"files/v1/{inner}", "files/v1", table["v1"], file=inner)
    logs = [inner for inner in sorted(corpus.member("files/logs")) if inner]
    explained = tuple(step(f"explain {inner}") for inner in logs)
    yield Case("files/logs: reading", ("files/logs",), explained)
    for target in _NOTHING:
        yield from one_each(f"files/{target}", "files/nothing", table["nothing"], target=target)
    for target in ("log", "producer"):
        yield from one_each(f"files/{target}", "files/log", table["nothing"], target=target)
    yield from one_each("files/lines", "files/nothing", table["lines"])
    yield from one_each("help/help", "files/nothing", table["help"])
