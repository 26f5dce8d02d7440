"""Hints that need no prediction."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.fusion.gradient import Gradient

# The layer's number in the name of a gradient, such as in `layers.3.linear1.weight`.
_NUMBERED = re.compile(r"^(.*?\D\.)(\d+)\.")
LEAST_LAYERS = 4


def stages(gradients: Sequence[Gradient]) -> str:
    """Hint about pipeline stages if gradients are named after numbered layers; else ""."""
    layers: dict[str, set[int]] = {}
    for one in gradients:
        if found := _NUMBERED.match(one.name):
            layers.setdefault(found[1], set()).add(int(found[2]))
    most = max(layers.values(), key=len, default=set())
    if len(most) < LEAST_LAYERS or most != set(range(min(most), max(most) + 1)):
        return ""
    return (
        f"The model has {len(most)} numbered layers. If they run one after another and the model does not fit "
        "one rank, pipeline stages may help: docs/guides/train_in_stages.md."
    )
