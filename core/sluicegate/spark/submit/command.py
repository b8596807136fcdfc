"""The command line of spark-submit, as it is run and as it may be shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote

from sluicegate.spark.submit.keys import Setting
from sluicegate.spark.submit.launcher import SparkSubmit
from sluicegate.spark.submit.request import Request
from sluicegate.spark.submit.secrets import is_private, shown_arguments, shown_setting

PRIVATE = "PRIVATE-FILE"
# The kernel takes arguments of up to 128 KiB; positions of thousands of partitions are longer.
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Command:
    """A spark-submit with all it is given; `environment` is what is added to ours."""

    spark_submit: SparkSubmit
    options: tuple[Setting, ...]
    plain: tuple[Setting, ...]
    private: tuple[Setting, ...]
    app: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def words(self, properties: str | None, extra: tuple[Setting, ...] = ()) -> list[str]:
        """What is executed, with the private settings in the file `properties`."""
        settings = [f"{key}={value}" for key, value in (*self.plain, *extra)]
        return [
            str(self.spark_submit.path),
            *self._options(properties, settings),
            self.app,
            *self.arguments,
        ]

    def shown(self) -> list[str]:
        """The same for a person's eyes: without secrets, and a word in place of the file."""
        options = self._options(
            PRIVATE if self.private else None, [shown_setting(each) for each in self.plain]
        )
        arguments = shown_arguments(self.arguments)
        return [str(self.spark_submit.path), *options, self.app, *arguments]

    def shown_line(self) -> str:
        """The same as one line of a shell."""
        variables = [f"{name}={quote(value)}" for name, value in self.environment.items()]
        return " ".join([*variables, *map(quote, self.shown())])

    def _options(self, properties: str | None, settings: list[str]) -> list[str]:
        first = ["--properties-file", properties] if properties else []
        named = [word for option in self.options for word in option]
        return [*first, *named, *(word for text in settings for word in ("--conf", text))]


def build(request: Request, spark_submit: SparkSubmit, own: tuple[Setting, ...]) -> Command:
    """The command for a request; `own` are the settings that `submit` adds."""
    settings = (*request.conf, *own)
    private = tuple(s for s in settings if is_private(s) or len(s[1].encode()) > _LONGEST)
    options = (
        ("--master", request.master),
        ("--class", request.main_class),
        ("--py-files", ",".join(request.py_files)),
        ("--jars", ",".join(request.jars)),
        ("--packages", ",".join(request.packages)),
    )
    return Command(
        spark_submit=spark_submit,
        options=tuple((name, value) for name, value in options if value),
        plain=tuple(setting for setting in settings if setting not in private),
        private=private,
        app=request.app,
        arguments=request.arguments,
        environment=spark_submit.environment(dict(request.conf)),
    )
