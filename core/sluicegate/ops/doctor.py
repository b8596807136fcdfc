"""Check whether this machine can run streams: Java, Spark, the file system, the clock, the PATH.

Reports findings like every other check. The file system is tested in a scratch directory in the
home, or where the home would be; the directory is removed afterwards.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from sluicegate import units
from sluicegate.errors import Locked, NotFound, SluicegateError
from sluicegate.findings import Finding, Severity, rule
from sluicegate.locks import FileLock
from sluicegate.spark import releases
from sluicegate.spark.submit import launcher
from sluicegate.spark.submit.command import settings_in
from sluicegate.storage import LocalStorage, local_root
from sluicegate.stream.home import check_home

_LOW_SPACE = 1024**3
_CLOCK_SLACK = 2.0
# A correct clock cannot be before the first release of this program.
_EARLIEST = 1_790_000_000
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "glusterfs", "ceph", "lustre")
_PROBE = "sluicegate-doctor-"

JAVA = rule(
    "SG-ENV-JAVA",
    Severity.WARNING,
    "no usable Java",
    "Spark 4 needs Java 17 or later, Spark 3.5 Java 8 or later. Commands that only read work "
    "without it; submit and demo do not.",
)
SPARK = rule(
    "SG-ENV-SPARK",
    Severity.WARNING,
    "no usable PySpark",
    f"Gated streams run on PySpark {releases.OLDEST} to {releases.NEWEST}. Checkpoints of any "
    "supported Spark can be read and repaired without it.",
)
VERSIONS = rule(
    "SG-ENV-VERSIONS",
    Severity.WARNING,
    "versions that do not fit together",
    "Spark runs on certain versions of Java and Python, and a connector on the Spark and the Scala "
    "it was built for: a job with another one does not start, or fails in its first batch. PySpark "
    "and the Spark of SPARK_HOME must be of one version. Only spark.jars.packages in "
    "spark-defaults.conf is checked for connectors.",
)
UNWRITABLE = rule(
    "SG-ENV-UNWRITABLE",
    Severity.ERROR,
    "the home's file system cannot be written",
    "A file could not be created, linked, renamed or fsynced in the directory of the home. Hard "
    "links are required: they ensure that exactly one of two concurrent writers wins.",
)
LOCKS = rule(
    "SG-ENV-LOCKS",
    Severity.ERROR,
    "file locks do not exclude",
    "Two processes held one exclusive lock at the same time, or a lock outlived its holder. Do "
    "not keep a home or an offset store on this file system.",
)
NETWORK = rule(
    "SG-ENV-NETWORK-FS",
    Severity.WARNING,
    "the home is on a network file system",
    "Locks and fsync were tested from this host only. Whether they work between hosts depends on "
    "the server and the mount options.",
)
SPACE = rule(
    "SG-ENV-SPACE",
    Severity.WARNING,
    "little free space",
    f"Less than {units.size(_LOW_SPACE)} is free in the file system of the home. A full disk stops "
    "writers; it does not damage acknowledged data.",
)
CLOCK = rule(
    "SG-ENV-CLOCK",
    Severity.WARNING,
    "the clock is wrong, or differs from the file system's",
    "Ages, retention and resets by time use this clock. It is before the release of this program, "
    "or differs by more than two seconds from the timestamps of the file system.",
)
UNCHECKED = rule(
    "SG-ENV-UNCHECKED",
    Severity.WARNING,
    "a check could not be made",
    "The check itself failed: a directory cannot be entered, a program does not run, or the disk "
    "is full. Its result is unknown.",
)
COLLISION = rule(
    "SG-ENV-PATH-COLLISION",
    Severity.WARNING,
    "another program is named sg",
    "Most Linux systems have a command `sg` that runs its arguments under another group. On this "
    "PATH it comes first, so `sg` is not Sluicegate. Type `sluicegate`, which is the same program.",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its result, and the finding if there is a problem."""

    name: str
    seen: str
    finding: Finding | None = None


def examine(home_uri: str, *, read_only: bool = False) -> list[Check]:
    """Make all checks; with `read_only`, without those that write."""
    checks = [*_try("python", _python), *_try("java", _java), *_try("spark", _spark)]
    checks += _try("connectors", _connectors)
    checks += _try("home", lambda: _home(home_uri))
    if read_only:
        checks.append(Check("file system", "not tested: read_only is set"))
    else:
        checks += _try("file system", lambda: _file_system(_nearest_existing(home_uri)))
    checks += _try("space", lambda: _space(_nearest_existing(home_uri)))
    return [*checks, *_try("sg on PATH", _command_name)]


def _try(name: str, check: Callable[[], Check | list[Check]]) -> list[Check]:
    """The result of a check; a check that fails is a finding and does not stop the others."""
    try:
        seen = check()
    except (SluicegateError, OSError, subprocess.SubprocessError) as e:
        return [Check(name, "not checked", UNCHECKED.at(name, f"{e}"))]
    return seen if isinstance(seen, list) else [seen]


def _python() -> Check:
    return Check("python", f"{sys.version.split()[0]} at {sys.executable}")


def _java() -> Check:
    spark = _installed()
    try:
        found = launcher.require_java(spark)
    except launcher.JavaUnusable as e:
        detail = f"{e.message}; {e.hint}"
        return Check("java", "not usable", JAVA.at("java", detail, repair=launcher.INSTALL))
    wrong = releases.misfit_java(spark, found.major) if spark else None
    finding = VERSIONS.at("java", wrong, repair=launcher.INSTALL) if wrong else None
    return Check("java", f"{found.major} at {found.path}", finding)


def _spark() -> Check:
    repair = f"pip install 'pyspark>={releases.OLDEST},<5'"
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Check("spark", "missing", SPARK.at("pyspark", "not installed", repair=repair))
    spark = launcher.find_spark_submit(None).spark or releases.Spark(version, "unknown")
    seen = f"{spark.version} with Scala {spark.scala}"
    if spark.release is None:
        wrong = f"{spark.version} is not one of {releases.OLDEST} to {releases.NEWEST}"
        return Check("spark", seen, SPARK.at("pyspark", wrong, repair=repair))
    if spark.version != version:
        wrong = f"submit starts Spark {spark.version}, and this Python has PySpark {version}"
        return Check("spark", seen, VERSIONS.at("SPARK_HOME", wrong, repair="unset SPARK_HOME"))
    misfit = releases.misfit_python(spark, sys.version_info[:2])
    return Check("spark", seen, VERSIONS.at("python", misfit) if misfit else None)


def _installed() -> releases.Spark | None:
    """The Spark that `submit` starts, if there is one and its version is known."""
    try:
        return launcher.find_spark_submit(None).spark
    except NotFound:
        return None


def _connectors() -> list[Check]:
    """The coordinates of each connector for this Spark, and packages that do not fit to it."""
    spark = _installed()
    if spark is None:
        return []
    wrong = list(releases.misfit_packages(spark, _packages()))
    none = f"none known for Spark {spark.version}"
    named = [Check(f"{kind} connector", at or none) for kind, at in spark.connectors.items()]
    place = "spark.jars.packages"
    return [*named, *(Check(place, each, VERSIONS.at(place, each)) for each in wrong)]


def _packages() -> list[str]:
    """The packages that spark-defaults.conf names for every job."""
    settings = settings_in(launcher.find_spark_submit(None).defaults)
    return [each.strip() for each in settings.get("spark.jars.packages", "").split(",")]


def _home(uri: str) -> Check:
    wrong = check_home(uri)
    return Check("home", uri, wrong[0] if wrong else None)


def _nearest_existing(uri: str) -> Path:
    absolute = local_root(uri).absolute()
    return next(p for p in (absolute, *absolute.parents) if p.is_dir())


def _file_system(place: Path) -> list[Check]:
    try:
        scratch = Path(tempfile.mkdtemp(prefix=_PROBE, dir=place))
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        return [Check("file system", "not writable", UNWRITABLE.at(str(place), reason))]
    try:
        checks = _try("file system", lambda: _storage(scratch, place))
        checks += _try("locks", lambda: _locks(scratch, place))
        checks += _try("clock", lambda: _clock(scratch, place))
        return [*checks, *_try("mount", lambda: _mount(scratch, place))]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _storage(scratch: Path, place: Path) -> Check:
    storage = LocalStorage(scratch)
    try:
        if not storage.put_if_absent("a", b"1") or storage.put_if_absent("a", b"2"):
            wrong = "exclusive creation does not exclude"
            return Check("file system", "unsafe", UNWRITABLE.at(str(place), wrong))
        started = time.perf_counter()
        storage.replace("a", b"3")
        took = time.perf_counter() - started
    except SluicegateError as e:
        return Check("file system", "unsafe", UNWRITABLE.at(str(place), e.message))
    return Check(
        "file system", f"create, link, rename and fsync work; {took * 1000:.1f} ms per write"
    )


def _locks(scratch: Path, place: Path) -> Check:
    lock = FileLock(scratch / "probe.lock")
    try:
        with lock.hold(timeout=0):
            free_meanwhile = _child_can_lock(lock.path)
        free_afterwards = _child_can_lock(lock.path)
    except Locked as e:
        return Check("locks", "unsafe", LOCKS.at(str(place), e.message))
    if free_meanwhile or not free_afterwards:
        wrong = "a second process took a held lock" if free_meanwhile else "a freed lock stays held"
        return Check("locks", "unsafe", LOCKS.at(str(place), wrong))
    return Check("locks", "one process at a time")


def _child_can_lock(path: Path) -> bool:
    """Whether another process can take the lock now: it must exclude other processes."""
    code = (
        "import pathlib, sys\n"
        "from sluicegate.errors import Locked\n"
        "from sluicegate.locks import FileLock\n"
        "try:\n"
        "    with FileLock(pathlib.Path(sys.argv[1])).hold(timeout=0): sys.exit(0)\n"
        "except Locked as e: sys.exit(e.exit_code)\n"
    )
    # -P: modules in the current directory must not be imported.
    command = [sys.executable, "-P", "-c", code, str(path)]
    answer = subprocess.run(command, check=False, timeout=60).returncode
    if answer not in (0, Locked.exit_code):
        raise SluicegateError(f"the test itself failed with exit code {answer}")
    return answer == 0


def _clock(scratch: Path, place: Path) -> Check:
    stamped = scratch / "clock"
    stamped.touch()
    now = time.time()
    skew = stamped.stat().st_mtime - now
    if now < _EARLIEST:
        return Check("clock", units.utc(now), CLOCK.at("clock", f"it shows {units.utc(now)}"))
    if abs(skew) > _CLOCK_SLACK:
        detail = f"timestamps of the file system differ by {skew:+.1f} s from this clock"
        return Check("clock", units.utc(now), CLOCK.at(str(place), detail))
    return Check("clock", f"{units.utc(now)}, matches the file system")


def _mount(scratch: Path, place: Path) -> Check:
    kind = _file_system_type(scratch)
    if kind in _NETWORK:
        return Check("mount", kind, NETWORK.at(str(place), f"it is {kind}"))
    return Check("mount", kind)


def _file_system_type(path: Path) -> str:
    """The type of the mount that holds a path, as Linux names it."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return "unknown"
    mounts = [line.split() for line in lines]
    # Spaces in mount points are written as octal escapes.
    points = [(m[1].replace("\\040", " "), m[2]) for m in mounts]
    holding = [(len(at), kind) for at, kind in points if path.resolve().is_relative_to(at)]
    return max(holding)[1] if holding else "unknown"


def _space(place: Path) -> Check:
    free = shutil.disk_usage(place).free
    seen = f"{units.size(free)} free"
    return Check("space", seen, SPACE.at(str(place), seen) if free < _LOW_SPACE else None)


def _command_name() -> Check:
    found = shutil.which("sg")
    if found is None:
        return Check("sg on PATH", "no; type sluicegate")
    if _is_ours(Path(found)):
        return Check("sg on PATH", found)
    finding = COLLISION.at(found, f"{found} is another program", repair="alias sg=sluicegate")
    return Check("sg on PATH", found, finding)


def _is_ours(script: Path) -> bool:
    with script.open("rb") as stream:
        return b"sluicegate_cli" in stream.read(4096)
