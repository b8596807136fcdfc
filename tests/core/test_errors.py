from __future__ import annotations

import pickle

import pytest

from sluicegate import codec
from sluicegate.errors import SluicegateError, error_classes, exit_codes
from sluicegate.spark.submit import launcher

# Importing them registers their errors with the hierarchy.
ELSEWHERE = (codec, launcher)

# From CLI.md, word for word what operators were promised.
PROMISED = {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 20, 130, 143}


@pytest.mark.parametrize("cls", list(error_classes()), ids=lambda cls: cls.__name__)
def test_every_class_carries_code_meaning_hint_and_documentation(
    cls: type[SluicegateError],
) -> None:
    assert cls.exit_code in PROMISED
    assert cls.meaning
    assert cls.default_hint
    assert cls.__doc__
    error = cls("it broke")
    assert (str(error), error.hint) == ("it broke", cls.default_hint)


@pytest.mark.parametrize("cls", list(error_classes()), ids=lambda cls: cls.__name__)
def test_errors_survive_the_way_between_processes(cls: type[SluicegateError]) -> None:
    back = pickle.loads(pickle.dumps(cls("it broke", hint="do this", place="/x")))
    assert type(back) is cls
    assert (back.message, back.hint, back.place) == ("it broke", "do this", "/x")


def test_the_exit_codes_are_those_promised() -> None:
    assert set(exit_codes()) == PROMISED


def test_one_exit_code_has_one_meaning() -> None:
    meanings: dict[int, set[str]] = {}
    for cls in error_classes():
        meanings.setdefault(cls.exit_code, set()).add(cls.meaning)
    assert {code: found for code, found in meanings.items() if len(found) > 1} == {}
