"""Applies each defect to a copy of the tree, and expects the suite to notice.

    python -m tests.mutants [NAME…]

prints a line for each defect and ends with 1 if one survives. The tests of a defect must pass on a
clean copy first, and then fail by an assertion or an error of a test: a copy that cannot be
imported proves nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.mutants.defects import DEFECTS, PACKAGES, ROOT, Defect

_COPIED = ("core", "cli", "tests", "docs", "bench", "completions", "man")
_SHARED = ("build",)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.pyc", ".pytest_cache")
_SECONDS = 900
_ALL_PASSED, _SOME_FAILED = 0, 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How tests ended: pytest's exit code, the first test that failed, and how long it took."""

    code: int
    failed: str | None
    seconds: float
    output: str


def copy_tree(target: Path) -> Path:
    """A copy of everything that tests need; checkpoints of the lab are shared, not made again."""
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, ignore=_LEFT_OUT, symlinks=True)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, target / path.name)
    for name in _SHARED:
        (ROOT / name).mkdir(exist_ok=True)
        (target / name).symlink_to(ROOT / name)
    return target


def environment(copy: Path) -> dict[str, str]:
    """Variables by which the copy wins over the editable install, also in processes of tests."""
    packages = os.pathsep.join(str(copy / name) for name in PACKAGES)
    return {**os.environ, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}


def check_imports(copy: Path) -> None:
    """Make sure that Python and the `sluicegate` script take the product from the copy."""
    script = str(Path(sys.executable).with_name("sluicegate"))
    for words in ([sys.executable, "-c", "import sluicegate_cli.shell"], [script, "--version"]):
        # Verbose, it reports where each module comes from.
        done = subprocess.run(
            words,
            env={**environment(copy), "PYTHONVERBOSE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{copy}/core/sluicegate/__init__.py" in done.stderr, words
        for name in PACKAGES:
            assert f"'{ROOT}/{name}/" not in done.stderr, f"{words} took {name} from the original"


def run_tests(copy: Path, tests: tuple[str, ...]) -> Outcome:
    """Run tests in a copy until the first fails."""
    report = copy / "report.xml"
    report.unlink(missing_ok=True)
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=short"]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, *words, f"--junitxml={report}", *tests],
            cwd=copy,
            env=environment(copy),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(-1, None, _SECONDS, f"no end within {_SECONDS} s")
    return Outcome(done.returncode, _failed(report), time.monotonic() - began, done.stdout)


def _failed(report: Path) -> str | None:
    """The first test that failed in its body; an error in a fixture or at collection is none."""
    if not report.is_file():
        return None
    for case in ET.parse(report).iter("testcase"):
        if case.find("failure") is not None:
            return f"{case.get('classname')}.{case.get('name')}"
    return None


def try_one(defect: Defect, copy: Path) -> bool:
    """Whether the tests catch a defect; the copy is clean afterwards."""
    path, text = defect.patched(copy)
    clean = path.read_text()
    path.write_text(text)
    try:
        outcome = run_tests(copy, defect.tests)
    finally:
        path.write_text(clean)
    if outcome.code == _SOME_FAILED and outcome.failed:
        print(f"{defect.name}: caught by {outcome.failed} in {outcome.seconds:.0f} s", flush=True)
        return True
    if outcome.code == _ALL_PASSED:
        print(f"{defect.name}: SURVIVED {' '.join(defect.tests)}: {defect.why}", flush=True)
    else:
        print(f"{defect.name}: NOT TRIED, the tests did not run:\n{outcome.output}", flush=True)
    return False


def main(names: list[str]) -> int:
    """Try the named defects, or all; 1 if one was not caught."""
    unknown = sorted(set(names) - {each.name for each in DEFECTS})
    if unknown:
        print(f"no such defect: {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = [each for each in DEFECTS if not names or each.name in names]
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        copy = copy_tree(Path(place).resolve())
        check_imports(copy)
        for tests in dict.fromkeys(each.tests for each in chosen):
            outcome = run_tests(copy, tests)
            if outcome.code != _ALL_PASSED:
                print(f"{' '.join(tests)} fails without a defect:\n{outcome.output}")
                return 1
        caught = [try_one(each, copy) for each in chosen]
        return 0 if all(caught) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
