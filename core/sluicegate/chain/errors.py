"""What can be wrong with a chain."""

from __future__ import annotations

from sluicegate.errors import Corrupt

_LOOK = "nothing was changed; see what is wrong with: sluicegate checkpoint verify STREAM"


class ChainDamaged(Corrupt):
    """The chain is not whole, so nothing may be built on it."""

    default_hint = _LOOK


class LinkDamaged(ChainDamaged):
    """A link is missing, unreadable, or not the one that belongs there."""


class ChainShort(ChainDamaged):
    """The chain ends before the newest link that is known to have been durable."""


class HeadDamaged(ChainDamaged):
    """The HEAD hint is missing or unreadable, so what the newest link was is not known."""
