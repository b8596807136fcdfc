"""The damage lab over all versions of Spark, as a table: `python -m tests.lab.table`.

Writes docs/results/lab.md; fails if any damage is not found, or if a healthy checkpoint gives an
alarm.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.checkpoint.damage import DAMAGES, Damage, Inapplicable, Made
from tests.drive import Driver, driver
from tests.lab.environments import ROOT, VERSIONS, cached
from tests.lab.recipes import RECIPES

PAGE = ROOT / "docs" / "results" / "lab.md"
HEAD = """# Damage lab

Every version of Spark wrote real checkpoints. The lab damages copies of them in every way that is
known to happen, and runs `checkpoint verify`. A cell shows on how many checkpoints the damage was
tried, and on how many `verify` reported the expected code; `-` means that this version cannot write
such a checkpoint. `make lab PART=verdicts` makes this page.

"""


def main() -> int:
    """Run everything, write the page, and give 1 if anything was not as expected."""
    labs = {version: cached(version) for version in VERSIONS}
    lines = [
        "| damage | expected | " + " | ".join(f"Spark {version}" for version in labs) + " |",
        "|---" * (len(labs) + 2) + "|",
    ]
    wrong: list[str] = []
    with driver() as sg:
        healthy = [_healthy(sg, lab, wrong) for lab in labs.values()]
        lines.append("| none: healthy | no error | " + " | ".join(healthy) + " |")
        for damage in DAMAGES:
            cells = [_cell(sg, damage, lab, wrong) for lab in labs.values()]
            expected = ", ".join(damage.codes or damage.also) or "no error"
            lines.append(f"| {damage.name} | {expected} | " + " | ".join(cells) + " |")
    PAGE.write_text(HEAD + "\n".join(lines) + "\n")
    print("\n".join([*lines, *wrong]))
    return 1 if wrong else 0


def _healthy(sg: Driver, lab: Path, wrong: list[str]) -> str:
    made = [Made(lab / recipe.name) for recipe in RECIPES if (lab / recipe.name).is_dir()]
    seen = {each.root: _codes(sg, each, read_data=True)[0] for each in made}
    alarmed = [f"{root}: {sorted(codes)}" for root, codes in seen.items() if codes]
    wrong += alarmed
    return f"{len(made) - len(alarmed)} of {len(made)}"


def _cell(sg: Driver, damage: Damage, lab: Path, wrong: list[str]) -> str:
    tried = [recipe for recipe in damage.recipes if (lab / recipe).is_dir()]
    found = skipped = 0
    for recipe in tried:
        with tempfile.TemporaryDirectory() as scratch:
            made = Made(Path(shutil.copytree(lab / recipe, Path(scratch) / recipe)))
            try:
                damage.change(made)
            except Inapplicable:
                skipped += 1
                continue
            errors, all_codes = _codes(sg, made, read_data=damage.read_data)
        wanted = set(damage.codes)
        right = errors == wanted if damage.exact else wanted <= errors
        right = right and set(damage.also) <= all_codes
        found += right
        if not right:
            wrong.append(f"{damage.name} on {lab.name}/{recipe}: {sorted(all_codes)}")
    count = len(tried) - skipped
    return f"{found} of {count}" if count else "-"


def _codes(sg: Driver, made: Made, *, read_data: bool) -> tuple[set[str], set[str]]:
    """The codes of the errors, and of everything."""
    sink = ["--sink", str(made.sink)] if made.sink else []
    reading = ["--read-data"] if read_data else []
    words = ["checkpoint", "verify", str(made.checkpoint), *sink, *reading, "--json"]
    done = sg(*words, cwd=made.root)
    if not done.stdout:
        raise RuntimeError(f"verify of {made.root} failed: {done.stderr}")
    found = done.document["findings"]
    errors = {finding["code"] for finding in found if finding["severity"] == "error"}
    return errors, {finding["code"] for finding in found}


if __name__ == "__main__":
    sys.exit(main())
