"""The absolute paths in a checkpoint that is moved."""

from __future__ import annotations

import pytest

from sluicegate.checkpoint.paths import Mover, as_uri


@pytest.mark.parametrize(
    ("moves", "before", "after"),
    [
        ({"/in": "/mnt/in"}, '{"path":"file:///in/a"}', '{"path":"file:///mnt/in/a"}'),
        ({"/in": "/mnt/in"}, '["file:/in/a","/in"]', '["file:/mnt/in/a","/mnt/in"]'),
        # Only where a path begins, and only complete parts of it.
        ({"/in": "/mnt/in"}, '{"path":"file:///data/in/a"}', '{"path":"file:///data/in/a"}'),
        ({"/in": "/mnt/in"}, '{"path":"file:///input/a"}', '{"path":"file:///input/a"}'),
        # A new path is not taken for an old one.
        ({"/a/c": "/b/c", "/b": "/x"}, '"file:///a/c/f" "/b/g"', '"file:///b/c/f" "/x/g"'),
        ({"/a": "/x", "/a/b": "/y"}, '"/a/b/f" "/a/f"', '"/y/f" "/x/f"'),
        ({"/a b": "/c%"}, '"file:///a%20b/f" "file:/a b/f"', '"file:///c%25/f" "file:/c%/f"'),
        ({"/ü": "/é x"}, '"file:///ü/f"', '"file:///é%20x/f"'),
        ({"/a": "/\\1"}, '"file:/a/f"', '"file:/\\1/f"'),
    ],
)
def test_moved(moves: dict[str, str], before: str, after: str) -> None:
    assert Mover(moves).moved(before.encode()).decode() == after


def test_as_uri() -> None:
    assert as_uri("/a b/ü#%?[x]=1,2") == "/a%20b/ü%23%25%3F%5Bx%5D=1,2"
