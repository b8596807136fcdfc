"""`python docs/generate [--check]`: write every generated file, or say which ones are stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWNED = ("completions", "docs/reference", "man")
"""Directories in which nothing else lives."""


def main() -> int:
    """Write what differs and remove what no longer belongs; with `--check` only say so."""
    parser = argparse.ArgumentParser(prog="python docs/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    check = parser.parse_args().check
    wanted = _wanted()
    stale = [path for path, text in wanted.items() if _read(path) != text]
    strays = [path for path in _present() if path not in wanted]
    for path in sorted(stale + strays):
        print(f"{'stale' if check else 'made' if path in wanted else 'removed'}:", _shown(path))
        if not check:
            _settle(path, wanted.get(path))
    return 1 if check and (stale or strays) else 0


def _wanted() -> dict[Path, str]:
    """The text of every generated file."""
    from generate import man, pages, schemas
    from generate.completions.bash import bash
    from generate.completions.fish import fish
    from generate.completions.zsh import zsh
    from generate.tree import read_tree

    root = read_tree()
    made = {
        "completions/sluicegate.bash": bash(root),
        "completions/_sluicegate": zsh(root),
        "completions/sluicegate.fish": fish(root),
        "docs/reference/commands.md": pages.commands(root),
        "docs/reference/config.md": pages.configuration(),
        "docs/reference/findings.md": pages.findings(root),
        "docs/reference/exit-codes.md": pages.exit_codes_page(),
        "docs/reference/schemas.md": schemas.page(root),
        **{f"man/{name}": text for name, text in man.pages(root).items()},
    }
    return {ROOT / name: text for name, text in made.items()}


def _present() -> list[Path]:
    return [path for name in OWNED for path in (ROOT / name).rglob("*") if path.is_file()]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _settle(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    # Python puts this directory on the path, not the one the package lies in.
    sys.path[0] = str(ROOT / "docs")
    sys.exit(main())
