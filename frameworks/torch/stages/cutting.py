"""Cut a model into stages, in agreement with the other ranks."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from paceline.errors import UsageError
from paceline.stages.execution.cut import first_layers
from paceline.stages.execution.sharing import refuse_shared
from paceline.torch.stages.layers import AnyLayer, Layer, Stage, free
from paceline.torch.stages.models import Cut
from paceline.torch.stages.ties import ties_of, untied
from paceline.torch.stages.timing import seconds_per_layer

TIME = "time"


def described(layers: Sequence[AnyLayer]) -> dict[str, Any]:
    """Properties of the layers that must agree between ranks before the cut; values of weights need not."""
    tensors = [(name, tuple(one.shape), str(one.dtype)) for layer in layers for name, one in layer.tensors()]
    return {
        "the number of layers": len(layers),
        "the digest of layers' names": zlib.crc32(repr([layer.name for layer in layers]).encode()),
        "the number of tensors": len(tensors),
        "the digest of tensors' names, shapes and types": zlib.crc32(repr(tensors).encode()),
    }


def measured(layers: Sequence[AnyLayer], sample: Any, costs: Any, device: torch.device | str | None) -> list[float]:
    """Seconds that each layer takes for the micro-batch `sample`. Raises UsageError if they cannot be measured."""
    if costs is not None:
        raise UsageError(f'stages="{TIME}" was given with costs=: both say what layers cost.', "Leave one of them out.")
    there = [layer for layer in layers if isinstance(layer, Layer)]
    if sample is None or len(there) < len(layers):
        problem = "layers that are built where their stages are" if sample is not None else "no sample="
        raise UsageError(
            f'stages="{TIME}" was given with {problem}: nothing can be timed.',
            "Give sample=, one micro-batch of what the first layer takes, and a model; or costs=.",
        )
    modules = [layer.called or layer.module for layer in there]
    return seconds_per_layer(modules, sample, None if device is None else torch.device(device))


class Cutting:
    """A model's layers cut into `count` stages; this rank builds and keeps `stage`.

    `names`: names of the first layers of all stages. `own`: the stage. `ties`: weights that it shares with other
    stages, which only `synchronous` schedules allow. Raises UsageError for impossible cuts and for other tensors in two
    stages.
    """

    def __init__(
        self,
        layers: Sequence[AnyLayer],
        stage: int,
        count: int,
        stages: Cut,
        costs: Sequence[float] | None,
        synchronous: bool,
    ) -> None:
        firsts = first_layers(layers, count, stages, costs)
        ties = ties_of(layers, firsts) if synchronous else []
        other = "" if synchronous else ', or use schedule="1f1b" or "gpipe"'
        refuse_shared("tensor", untied(layers, ties), firsts, other)
        # Only stages that take part in a tie keep its memory.
        self.ties = [tie for tie in ties if stage in (tie.owner, *tie.copies)]
        begin, end = list(itertools.pairwise([*firsts, len(layers)]))[stage]
        self.names = [layers[first].name for first in firsts]
        copies = [tie.parameter for tie in self.ties if stage in tie.copies]
        self.own = Stage([layer.built() for layer in layers[begin:end]], copies)
        self._others = [*layers[:begin], *layers[end:]]

    def free_others(self) -> None:
        """Free the memory of the other stages' layers."""
        free(self._others)


def always_trains(stage: Stage) -> str:
    """Describe what a traced stage does as in training in every mode; "" for all other stages."""
    if all(layer.called is None for layer in stage.layers):
        return ""
    from paceline.torch.stages import traced  # loads torch.fx, which is slow

    return traced.always_trains(stage.module)


def refuse_twice(names: Sequence[Sequence[str]]) -> None:
    """Raise UsageError if tensors of two stages have the same name; `names`: parameter names of each stage."""
    owner: dict[str, int] = {}
    for stage, own in enumerate(names):
        for name in own:
            if owner.setdefault(name, stage) != stage:
                raise UsageError(
                    f"A parameter of stage {stage} has the name of one of stage {owner[name]}, {name}.",
                    "Give a list of functions, one for each stage, or stages whose tensors have their names in the "
                    "whole model.",
                )
