"""The command line of spark-submit: the request, its settings, and its secrets.

| setting | meaning |
|---|---|
| `spark.sluicegate.checkpoint` | the checkpoint that was checked; also lets the JVM be recognised |
| `spark.sluicegate.startingOffsets` | positions to start from, as Kafka's option takes them |
| `spark.sluicegate.offsetsStore` | the offset store that finished batches are committed to |
| `spark.sluicegate.consumer` | the consumer of that store whose positions these are |
| `spark.sluicegate.progress` | a pipe that takes one line of JSON per finished batch |
| `spark.sluicegate.stream` | the gated stream that the job runs |
| `spark.sluicegate.config` | the configuration that describes it |
| `spark.sluicegate.home` | the home that holds its chain |
| `spark.sluicegate.availableNow` | `true`: end when all available events are read |
| `spark.sluicegate.interval` | seconds from one epoch to the next, at least |
| `spark.sluicegate.force` | `true`: take over from a running job |

`--properties-file` replaces spark-defaults.conf instead of adding to it (an option to have both
exists since Spark 4.0 only), so its text is put in front of ours; if both have a key, Java takes
the last. The file is in memory where the system supports it: nothing is left behind, however the
job ends.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from sluicegate.errors import StorageFailed, UsageError
from sluicegate.spark.submit.launcher import SparkSubmit

PREFIX = "spark.sluicegate."
CHECKPOINT = PREFIX + "checkpoint"
STARTING_OFFSETS = PREFIX + "startingOffsets"
OFFSETS_STORE = PREFIX + "offsetsStore"
CONSUMER = PREFIX + "consumer"
PROGRESS = PREFIX + "progress"
STREAM = PREFIX + "stream"
CONFIG = PREFIX + "config"
HOME = PREFIX + "home"
AVAILABLE_NOW = PREFIX + "availableNow"
INTERVAL = PREFIX + "interval"
FORCE = PREFIX + "force"

Setting = tuple[str, str]


HIDDEN = "***"
_WORDS = r"secret|password|passwd|token|credential|access.?key"
_NAME = re.compile(_WORDS, re.IGNORECASE)
# A secret inside a longer value: java options, JAAS configuration, queries of URLs. Bounded, since
# values can be long.
_INSIDE = re.compile(
    rf"""((?:{_WORDS})[\w.\-]{{0,100}}["']?\s{{0,9}}[=:]\s{{0,9}})("[^"]*"|'[^']*'|[^\s,;&"']+)""",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(://[^/\s:@]{0,200}:)([^/\s@]{1,200})(?=@)")
# Shorter ones would also hide unrelated text.
_LEAST = 4


def is_private(setting: Setting) -> bool:
    """Whether a setting holds a secret, by its name or inside its value."""
    key, value = setting
    return bool(_NAME.search(key)) or _masked(value) != value


def shown_setting(setting: Setting) -> str:
    """A setting as `key=value`, without its secrets."""
    key, value = setting
    return f"{key}={HIDDEN if _NAME.search(key) and value else _masked(value)}"


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments of an application without the values of options that are named like secrets."""
    return [
        HIDDEN if secret and text else _masked(text) for text, secret in _with_verdict(arguments)
    ]


@dataclass(frozen=True, slots=True)
class Secrets:
    """The values that must never be shown."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Iterable[Setting], arguments: Sequence[str]) -> Secrets:
        """The secrets among settings and arguments."""
        found = {text for text, secret in _with_verdict(arguments) if secret}
        for text in arguments:
            found.update(_inside(text))
        for key, value in settings:
            found.update([value] if _NAME.search(key) else _inside(value))
        # The longest first, or a part of a secret that contains another would stay visible.
        return cls(tuple(sorted((v for v in found if len(v) >= _LEAST), key=len, reverse=True)))

    def hide(self, text: str) -> str:
        """The text without the secrets, and without what looks like one."""
        for value in self.values:
            text = text.replace(value, HIDDEN)
        return _masked(text)


def _with_verdict(arguments: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each argument, and whether it is the value of an option before it that names a secret."""
    follows = False
    for text in arguments:
        yield text, follows and not text.startswith("--")
        follows = text.startswith("-") and "=" not in text and bool(_NAME.search(text))


def _masked(text: str) -> str:
    return _IN_URL.sub(rf"\1{HIDDEN}", _INSIDE.sub(rf"\1{HIDDEN}", text))


def _inside(text: str) -> list[str]:
    found = [match[2].strip("\"'") for match in _INSIDE.finditer(text)]
    return found + [match[2] for match in _IN_URL.finditer(text)]


_ESCAPED = re.compile(r"[\\:=#! \t\n\r\f]")
_LINE = re.compile(r"\s*([^\s#!=:][^\s=:]*)(?:\s*[=:]\s*|\s+)(.*)")
_LETTERS = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


@dataclass(frozen=True, slots=True)
class PrivateFile:
    """Where a process that inherits the descriptors can read the settings."""

    path: str
    descriptors: tuple[int, ...] = ()


@contextmanager
def private_file(
    settings: Iterable[Setting], defaults: Path | None
) -> Iterator[PrivateFile | None]:
    """The file for these settings, as long as the block lasts; None if there are none."""
    chosen = tuple(settings)
    if not chosen:
        yield None
        return
    data = _read(defaults) + render(chosen).encode("ascii")
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("spark.properties", os.MFD_CLOEXEC)
        try:
            os.write(fd, data)
            # Opening this name opens the file again, from its start, in any process that has it.
            yield PrivateFile(f"/proc/self/fd/{fd}", (fd,))
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile(prefix="sluicegate-", suffix=".properties") as stream:
        stream.write(data)
        stream.flush()
        yield PrivateFile(stream.name)


def render(settings: Iterable[Setting]) -> str:
    """Settings as a Java properties file, in ASCII."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in settings)


def _escape(text: str) -> str:
    escaped = _ESCAPED.sub(lambda m: _LETTERS.get(m[0], "\\" + m[0]), text)
    return "".join(c if c.isascii() else _unicode(c) for c in escaped)


def _unicode(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2] for at in range(0, len(units), 2))
    return "".join(f"\\u{int.from_bytes(pair, 'big'):04x}" for pair in pairs)


def settings_in(defaults: Path | None) -> dict[str, str]:
    """The settings that spark-defaults.conf makes, as far as each is on one line."""
    lines = _read(defaults).decode("latin-1").splitlines()
    found = (_LINE.fullmatch(line) for line in lines)
    return {match[1]: match[2].strip() for match in found if match}


def _read(defaults: Path | None) -> bytes:
    if defaults is None:
        return b""
    try:
        return defaults.read_bytes() + b"\n"
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise StorageFailed(f"{defaults}: {reason}", place=str(defaults)) from e


_PYTHON, _JAR = ".py", ".jar"


@dataclass(frozen=True, slots=True)
class Request:
    """An application, how Spark is to run it, and where it resumes."""

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
    """Settings from `K=V` texts; if one is repeated, the last wins, as in Spark."""
    found: dict[str, str] = {}
    for number, text in enumerate(texts, start=1):
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            # Not shown: without a key, the text may be just a password.
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


PRIVATE = "PRIVATE-FILE"
# The kernel takes arguments of up to 128 KiB; positions of thousands of partitions are longer.
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Command:
    """A spark-submit with all its arguments; `environment` is added to ours."""

    spark_submit: SparkSubmit
    options: tuple[Setting, ...]
    plain: tuple[Setting, ...]
    private: tuple[Setting, ...]
    app: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def words(self, properties: str | None, extra: tuple[Setting, ...] = ()) -> list[str]:
        """The executed words, with the private settings in the file `properties`."""
        settings = [f"{key}={value}" for key, value in (*self.plain, *extra)]
        return [
            str(self.spark_submit.path),
            *self._options(properties, settings),
            self.app,
            *self.arguments,
        ]

    def shown(self) -> list[str]:
        """The same for display: without secrets, and with a placeholder for the file."""
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
