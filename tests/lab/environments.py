"""Virtual environments with other versions of Spark, and the checkpoints made in them.

    python -m tests.lab.environments [VERSION …]

makes what is missing below `build/lab` and prints where each version's checkpoints are. What the
test suite needs of the newest version is packed in `packed`, so that nobody waits for Spark to make
the same again; it is used as long as what it is made of has not changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from tests import tree

ROOT = Path(__file__).parents[2]
VERSIONS = ("4.3.0", "4.0.5", "3.5.9")
JOB_VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")
"""Those that the gated job is run on."""

_HERE = Path(__file__).parent
_PACKED = _HERE / "packed"
_INGREDIENTS = ("recipes.py", "plans.py", "make.py")
# For Python data sources, transformWithState and state in pandas. PySpark says of itself that it is
# not ready for pandas 3, and 3.5 that it needs NumPy 1.
_PYTHON_WORKER = ("pandas>=2.2,<3", "pyarrow>=15", "protobuf>=5")
_PYTHON_WORKER_OF_3 = ("pandas>=2.0,<2.3", "numpy<2", "pyarrow>=15,<18")


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Let no other process in while the block runs; `lock` is a file that need not exist."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def unpacked(place: Path) -> bool:
    """Fill a directory from the archive of its name, if there is one; return whether it did."""
    archive = _PACKED / f"{place.name}.json.xz"
    if not archive.is_file():
        return False
    for name, files in tree.unpack(archive.read_bytes()).items():
        tree.write(files, place / name)
    return True


def pack(place: Path) -> None:
    """Keep a directory that Spark has made as the archive of its name."""
    _PACKED.mkdir(exist_ok=True)
    for outdated in _PACKED.glob(f"{place.name.rpartition('-')[0]}-*"):
        outdated.unlink()
    parts = {each.name: tree.load(each) for each in sorted(place.iterdir()) if each.is_dir()}
    loose = {
        each.name: tree.Entry(each.read_bytes())
        for each in sorted(place.iterdir())
        if each.is_file() and each.suffix != ".log"
    }
    (_PACKED / f"{place.name}.json.xz").write_bytes(tree.pack(parts | {".": loose}))


def requirements(version: str) -> list[str]:
    """Return what pip must install for a version of Spark."""
    workers = _PYTHON_WORKER_OF_3 if version.startswith("3.") else _PYTHON_WORKER
    return [f"pyspark=={version}", *workers]


def environment(version: str, root: Path = ROOT) -> Path:
    """Return a Python with that version of Spark: this one, or one made for it."""
    if _is_here(version):
        return Path(sys.executable)
    return _environment(_lab(root) / f"spark-{version}", requirements(version))


def job_environment(version: str, root: Path = ROOT) -> Path:
    """Return a Python with that version of Spark and this package, made with what it asks for."""
    if _is_here(version):
        return Path(sys.executable)
    pins = hashlib.sha256((root / "pyproject.toml").read_bytes()).hexdigest()[:12]
    wanted = [f"pyspark=={version}", f"--editable={root}"]
    return _environment(_lab(root) / f"job-{version}-{pins}", wanted)


def _environment(place: Path, wanted: list[str]) -> Path:
    """Return the Python of a virtual environment in a place, made if it is not there."""
    python = place / "bin" / "python"
    text = "\n".join(wanted) + "\n"
    ready = place / "lab-ready"
    with alone(place.with_name(f"{place.name}.lock")):
        if not ready.is_file() or ready.read_text() != text:
            venv.create(place, with_pip=True, clear=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
            ready.write_text(text)
    return python


def _is_here(version: str) -> bool:
    """Whether the running Python has that Spark and what its Python workers need."""
    try:
        found = {name: metadata.version(name) for name in ("pyspark", "pandas", "pyarrow")}
    except metadata.PackageNotFoundError:
        return False
    return found["pyspark"] == version and found["pandas"].startswith("2.")


def cached(version: str, root: Path = ROOT) -> Path:
    """Return the directory of the version's checkpoints, one folder per recipe.

    They are made again only when the version or the lab's own files have changed. Checkpoints hold
    absolute paths, so they are made where they stay: `done` is what tells a whole set from a part.
    """
    place = _lab(root) / f"checkpoints-{version}-{_digest()}"
    done = place / "done"
    with alone(_lab(root) / f"checkpoints-{version}.lock"):
        if not done.is_file():
            for outdated in _lab(root).glob(f"checkpoints-{version}-*"):
                shutil.rmtree(outdated)
            place.mkdir()
            if not unpacked(place):
                _make(environment(version, root), place)
            done.touch()
    return place


def _make(python: Path, place: Path) -> None:
    log = place / "make.log"
    with log.open("w") as stream:
        command = [str(python), str(_HERE / "make.py"), str(place)]
        code = subprocess.run(command, stdout=stream, stderr=stream, check=False).returncode
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise RuntimeError(f"the lab failed with code {code}, see {log}:\n{tail}")


def _digest() -> str:
    """Return a short hash of everything that decides what the checkpoints hold."""
    hashed = hashlib.sha256()
    for name in _INGREDIENTS:
        hashed.update((_HERE / name).read_bytes())
    return hashed.hexdigest()[:12]


def _lab(root: Path) -> Path:
    place = root / "build" / "lab"
    place.mkdir(parents=True, exist_ok=True)
    return place


if __name__ == "__main__":
    for wanted_version in sys.argv[1:] or VERSIONS:
        print(cached(wanted_version), flush=True)
