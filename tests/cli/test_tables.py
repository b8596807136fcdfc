"""How wide the columns of a table are on a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluicegate.units import counted
from sluicegate_cli.output.console import column_widths

LINES = [
    ["operation", "when", "what", "undo"],
    ["clicks@8", "2026-11-16T14:40:07Z", "to-datetime: 1200 → 400", "no: start the job again"],
]
cells = st.text("ab ", min_size=1, max_size=12)
tables = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.lists(cells, min_size=n, max_size=n), min_size=1, max_size=4)
)


def test_words_are_not_broken() -> None:
    assert column_widths(LINES, 81) is None, "all of it fits"
    assert column_widths(LINES, 80) == [9, 20, 23, 22]
    assert column_widths(LINES, 54) == [9, 20, 13, 6]
    assert column_widths(LINES, 52) == [9, 20, 12, 5]
    assert column_widths(LINES, 51) is None, "rich breaks them where it must"


@given(tables, st.integers(1, 80))
def test_the_room_is_used_and_not_more(lines: list[list[str]], room: int) -> None:
    widths = column_widths(lines, room)
    if widths is None:
        return
    assert sum(widths) + 2 * (len(widths) - 1) == room
    for line in lines:
        for cell, width in zip(line, widths, strict=True):
            assert all(len(word) <= width for word in cell.split())


def test_one_and_many() -> None:
    assert counted(1, "file") == "1 file"
    assert counted(0, "file") == "0 files"
    assert counted(1200, "entry", "entries") == "1,200 entries"
