"""Horovod's PyTorch module, checked; the other modules take it from here."""

from __future__ import annotations

from typing import Any

from paceline.horovod.load import load

horovod_torch: Any = load("torch")
