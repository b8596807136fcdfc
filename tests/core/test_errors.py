from __future__ import annotations

import pickle
import traceback

import pytest

from sluicegate import codec
from sluicegate.errors import (
    Fenced,
    NotFound,
    SluicegateError,
    StorageFailed,
    error_classes,
    error_in,
    exit_codes,
)
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


def test_a_traceback_with_notes_says_it_all() -> None:
    """Also if another of our errors caused it, and inside of another text."""
    error = StorageFailed("no space", hint="free some", place="/x y").with_notes()
    error.__cause__ = NotFound("there is no /x")
    text = "".join(traceback.format_exception(error))
    assert "NotFound" in text
    found = error_in(f"Job aborted:\n{text}\n\tat org.apache")
    assert isinstance(found, StorageFailed)
    assert (found.message, found.hint, found.place) == ("no space", "free some", "/x y")


def test_a_traceback_without_notes_says_what_failed() -> None:
    found = error_in("sluicegate.errors.Nothing: a\nsluicegate.errors.Fenced: b\nmore")
    assert isinstance(found, Fenced)
    assert (found.message, found.hint, found.place) == ("b", Fenced.default_hint, None)
    assert error_in("OSError: no space") is None


def test_the_exit_codes_are_those_promised() -> None:
    assert set(exit_codes()) == PROMISED


def test_one_exit_code_has_one_meaning() -> None:
    meanings: dict[int, set[str]] = {}
    for cls in error_classes():
        meanings.setdefault(cls.exit_code, set()).add(cls.meaning)
    assert {code: found for code, found in meanings.items() if len(found) > 1} == {}
