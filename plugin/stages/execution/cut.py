"""Division of a model into stages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol

from paceline.errors import UsageError
from paceline.option import nearest

AUTO = "auto"


class Layer(Protocol):
    """Unit of the division of a model."""

    @property
    def name(self) -> str:
        """Name in the whole model."""
        ...

    @property
    def cost(self) -> int:
        """Number of elements of its parameters."""
        ...


def first_layers(
    layers: Sequence[Layer], stages: int, asked: str | Sequence[int | str], costs: Sequence[float] | None = None
) -> list[int]:
    """Return the number of the first layer of each stage, 0 for the first stage.

    `asked`: "auto" minimises the cost of the most costly stage, by `costs` of the layers or by their numbers of
    parameters; otherwise the first layers of stages 1 .. P-1, as numbers or names.

    Raises UsageError for more stages than layers, and for cuts that are unknown, too many or few, or out of order.
    """
    if stages > len(layers):
        raise UsageError(
            f"The model has {len(layers)} layers, and there are {stages} stages, one per rank: found fewer layers than "
            "stages.",
            f"Start {len(layers)} ranks at most, or write the model as more layers.",
        )
    if isinstance(asked, str):
        if asked != AUTO:
            raise UsageError(
                f"stages={asked!r} is not known.", f'Use "{AUTO}" or a list of numbers or names of layers.'
            )
        return balanced(_costs(layers, costs), stages)
    found = [0, *(_number(layers, one) for one in asked)]
    if len(found) != stages:
        raise UsageError(
            f"stages={list(asked)} makes {len(found)} stages, expected {stages}: one per rank.",
            f"Give {stages - 1} cuts, the first layers of stages 1 to {stages - 1}.",
        )
    if any(later <= before for before, later in itertools.pairwise(found)):
        raise UsageError(
            f"stages={list(asked)} are the layers {found[1:]}: expected them to rise, from 1 on.",
            "Each stage takes one layer at least, in the order of the model.",
        )
    return found


def balanced(costs: Sequence[float], stages: int) -> list[int]:
    """Return the first parts of `stages` non-empty runs of parts, such that the maximum cost of a run is minimal."""
    count = len(costs)
    sums = [0.0, *itertools.accumulate(costs)]
    # best[i]: for the first i parts in the number of runs so far, the maximum cost and the start of the last run.
    best = [(total, 0) for total in sums]
    tables = []
    for run in range(2, stages + 1):
        best = [
            min((max(best[begin][0], sums[end] - sums[begin]), begin) for begin in range(run - 1, max(end, run)))
            for end in range(count + 1)
        ]
        tables.append(best)
    firsts, end = [], count
    for table in reversed(tables):
        end = table[end][1]
        firsts.append(end)
    return [0, *reversed(firsts)]


def _costs(layers: Sequence[Layer], costs: Sequence[float] | None) -> Sequence[float]:
    if costs is None:
        return [layer.cost for layer in layers]
    if len(costs) != len(layers) or any(not cost >= 0 for cost in costs):
        raise UsageError(
            f"costs= has {len(costs)} values: expected {len(layers)}, one of at least 0 for each layer.",
            f"The layers are {', '.join(layer.name for layer in layers)}.",
        )
    return costs


def _number(layers: Sequence[Layer], asked: int | str) -> int:
    names = [layer.name for layer in layers]
    if isinstance(asked, str):
        # A nested part begins with its first layer.
        for number, name in enumerate(names):
            if name == asked or name.startswith(f"{asked}."):
                return number
        raise UsageError(f"stages= names a layer {asked!r} that is not there.", nearest(asked, names))
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 < asked < len(layers):
        raise UsageError(
            f"stages= has {asked!r}: expected a number from 1 to {len(layers) - 1}, or a name.",
            "A stage begins with the layer of that number; the first begins with layer 0 anyway.",
        )
    return asked
