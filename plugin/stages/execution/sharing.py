"""What two stages cannot both have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.errors import UsageError


def refuse_shared(kind: str, layers: Iterable[Iterable[tuple[str, Any]]], firsts: Sequence[int]) -> None:
    """Raise UsageError for one that layers of two stages have.

    `kind`: what a framework calls it. `layers`: of each layer, the names and objects. `firsts`: the first layer of each
    stage.
    """
    owner: dict[int, tuple[str, int]] = {}
    for number, layer in enumerate(layers):
        stage = sum(first <= number for first in firsts) - 1
        for name, one in layer:
            other, before = owner.setdefault(id(one), (name, stage))
            if before != stage:
                raise UsageError(
                    f"{name} of stage {stage} is the same {kind} as {other} of stage {before}: each would train a copy "
                    "of its own.",
                    f"Cut the model so that both are in one stage, or give them {kind}s of their own.",
                )
