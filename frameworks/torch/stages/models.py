"""Convert all supported kinds of models to layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from torch import nn

from paceline.errors import UsageError
from paceline.stages.execution.cut import AUTO
from paceline.torch.stages.layers import AnyLayer, Layer, Planned, layers_of

Cut = str | Sequence[int | str]


def layers_of_model(model: Any, stages: Cut, sample: Any, stage: int, count: int) -> tuple[Sequence[AnyLayer], Cut]:
    """Return the layers, and the cut for `first_layers`.

    `model`: an nn.Sequential or a list, as `layers_of` takes it; a Pipe of torch.distributed.pipelining, or its
    PipelineStage number `stage` of `count`; or a module to be traced with `sample` and cut at `stages`. Raises
    UsageError for others.
    """
    if hasattr(model, "submod") and hasattr(model, "stage_index"):
        return _stage_of_torch(model, stage, count), AUTO
    if hasattr(model, "split_gm"):
        return _traced().layers_of_pipe(model), stages
    if isinstance(model, nn.Module) and not isinstance(model, (nn.Sequential, nn.ModuleList)) and sample is not None:
        if isinstance(stages, str) or not all(isinstance(one, str) for one in stages):
            raise UsageError(
                f"stages={stages!r} was given with a {type(model).__name__} and sample=, by which it is traced.",
                "Name the submodules that stages 1 to P-1 begin with.",
            )
        if len(stages) != count - 1:
            raise UsageError(
                f"stages={list(stages)} makes {len(stages) + 1} stages, expected {count}: one per rank.",
                f"Name {count - 1} submodules.",
            )
        return _traced().traced(model, [str(one) for one in stages], sample), AUTO
    return layers_of(model), stages


def _stage_of_torch(given: Any, stage: int, count: int) -> list[AnyLayer]:
    """Layers with a PipelineStage of torch.distributed.pipelining among them; other ranks have the other stages."""
    if (given.stage_index, given.num_stages) != (stage, count):
        raise UsageError(
            f"Stage {stage} of {count} was given a PipelineStage {given.stage_index} of {given.num_stages}.",
            "Give each rank its own, and have as many stages as ranks.",
        )
    if hasattr(given, "pipe_info"):
        graph = given.pipe_info.graph
        own = _traced().layers_of_graph(graph, lambda number: given.submod if number == stage else None)[stage]
    else:
        own = Layer(f"stage {stage}", given.submod, Spread(given.submod), prefix="")
    return [Planned(f"stage {one}", (lambda: own) if one == stage else _of_others) for one in range(count)]


def _of_others() -> NoReturn:
    raise AssertionError("A rank builds its own stage alone.")


def _traced() -> Any:
    # torch.fx and all that comes with it takes a while to load.
    from paceline.torch.stages import traced

    return traced


class Spread(nn.Module):
    """Calls a module that takes several tensors as separate arguments."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, value: Any) -> Any:
        """Call the module with a tensor, or with each tensor of a tuple or list."""
        return self.module(*value) if isinstance(value, (tuple, list)) else self.module(value)
