"""What `submit` is asked for, checked as far as words alone can be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluicegate.errors import UsageError
from sluicegate.spark.submit.keys import PREFIX, Setting

_PYTHON, _JAR = ".py", ".jar"


@dataclass(frozen=True, slots=True)
class Request:
    """An application, how Spark is to run it, and where it goes on from."""

    app: str
    arguments: tuple[str, ...] = ()
    master: str | None = None
    main_class: str | None = None
    conf: tuple[Setting, ...] = ()
    py_files: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    spark_submit: str | None = None
    checkpoint: str | None = None
    store: str | None = None
    consumer: str | None = None
    allow_new_consumer: bool = False
    skip_verify: bool = False
    writer_gone: bool = False

    @property
    def is_python(self) -> bool:
        return self.app.endswith(_PYTHON)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the driver will run on another machine, out of reach of pipes and signals."""
        return dict(self.conf).get("spark.submit.deployMode") == "cluster"

    def checked(self) -> Request:
        """This request, or `UsageError` if it contradicts itself."""
        if not self.app.endswith((_PYTHON, _JAR)):
            raise UsageError(f"{self.app} is neither a .py nor a .jar file")
        if self.consumer is not None and self.store is None:
            raise UsageError("--consumer needs --offsets-store", hint="name the store as well")
        if self.allow_new_consumer and self.store is None:
            raise UsageError("--allow-new-consumer needs --offsets-store")
        wheels = [name for name in self.py_files if name.endswith(".whl")]
        if wheels:
            raise UsageError(
                f"--py-files does not take wheels: {wheels[0]}",
                hint="give a .zip or .py, or install the wheel where the job runs",
            )
        return self


def parse_conf(texts: Iterable[str]) -> tuple[Setting, ...]:
    """Settings from `K=V` texts; of one that is given twice the last counts, as in Spark."""
    found: dict[str, str] = {}
    for number, text in enumerate(texts, start=1):
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            # Not shown: whoever forgot the key may have given the password only.
            raise UsageError(f"--conf number {number} is not KEY=VALUE")
        if key.startswith(PREFIX):
            raise UsageError(
                f"--conf {key} is set by submit itself",
                hint="use --checkpoint, --offsets-store and --consumer",
            )
        found[key] = value
    return tuple(found.items())


def parse_list(texts: Iterable[str]) -> tuple[str, ...]:
    """The entries of options that may be repeated and may hold several, comma-separated."""
    return tuple(each for text in texts for each in text.split(",") if each)
