"""A consumer that keeps its positions in an offset store.

Its input is STORE, FIRST and EVERY, a line each. It commits six times, the first time at FIRST (in
seconds since 1970), then every EVERY seconds.
"""

from __future__ import annotations

import sys
import time
from unittest.mock import patch

from sluicegate.offsets import LockFileOffsetStore
from sluicegate.positions import Positions


def main(place: str, first: str, every: str) -> None:
    store = LockFileOffsetStore.create(place)
    for number in range(6):
        offsets = {0: 12040 + 60 * number, 1: 9650 + 45 * number}
        with patch.object(time, "time", return_value=float(first) + float(every) * number):
            store.save_many("billing", Positions({"orders": offsets}))


if __name__ == "__main__":
    main(*sys.stdin.read().splitlines())
