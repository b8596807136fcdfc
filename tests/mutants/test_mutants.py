"""The defects still apply to the tree; that the suite catches them is tried by `make mutants`."""

from __future__ import annotations

import pytest

from tests.mutants.defects import DEFECTS, ROOT, Defect


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
class TestDefect:
    def test_it_applies_once_and_still_is_python(self, defect: Defect) -> None:
        places = defect.places()
        assert len(places) == 1, (
            f"{defect.name} applies to {places}: carry it along, see defects.py"
        )
        path, text = defect.patched()
        assert text != path.read_text()
        compile(text, str(path), "exec")

    def test_its_tests_are_there(self, defect: Defect) -> None:
        for test in defect.tests:
            file, *names = test.partition("[")[0].split("::")
            assert (ROOT / file).exists(), test
            assert all(name in (ROOT / file).read_text() for name in names), test


def test_there_are_enough_of_them() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 10
