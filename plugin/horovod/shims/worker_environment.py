"""Settings of a driver reach the workers that Ray and Spark start for it.

A worker of Ray has the environment of its node, one of Spark that of its executor: the driver's variables are in
neither, and a setting that does not arrive is off without a word.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def with_drivers(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """The variables that were `given` for workers, and the driver's PACELINE_* variables that are not among them."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("PACELINE_")}
    return {**settings, **(given or {})}
