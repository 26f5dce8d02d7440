"""Pass the driver's settings to the workers that Ray and Spark start.

A Ray worker inherits its node's environment, a Spark worker its executor's. Neither has the driver's variables, and a
missing setting would be off without an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def with_drivers(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables `given` for workers and the driver's other PACELINE_* variables."""
    settings = {name: value for name, value in os.environ.items() if name.startswith("PACELINE_")}
    return {**settings, **(given or {})}
