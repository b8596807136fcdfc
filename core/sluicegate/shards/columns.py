"""Columns of numbers, which most of what is here is about."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Column: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
