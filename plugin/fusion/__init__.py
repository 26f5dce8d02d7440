"""Merging of gradients: measured costs, plans, and the policies that make them.

`register` names a user's policy, a function of `Gradient`s and a `CostModel`. docs/guides/planning.md has an example.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.core._core import CostModel
    from paceline.fusion.gradient import Gradient
    from paceline.fusion.policies import register

__all__ = ["CostModel", "Gradient", "register"]

# Imported on use: most importers of the package never make a plan.
_HOMES = {
    "CostModel": "paceline.core._core",
    "Gradient": "paceline.fusion.gradient",
    "register": "paceline.fusion.policies",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
