"""Horovod's TensorFlow module with Paceline's additions, checked; other modules import it from here."""

from __future__ import annotations

from typing import Any

import paceline.lifecycle  # noqa: F401  notified of init() and shutdown() once loaded (shims/glue.py)
from paceline.horovod.load import load

horovod_tensorflow: Any = load("tensorflow")
