"""Forward and backward passes of one stage, at the weights that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from paceline.stages.execution import flight
from paceline.torch.stages import saved, trees
from paceline.torch.stages.correction import Correction
from paceline.torch.stages.weights import Weights


@dataclass
class Flight(flight.Flight):
    """`gradients`: what the backward pass found for inputs that are differentiable, by number. `roots`: where the
    backward pass begins, for each output that wants a gradient; None where nothing depends on it.
    """

    gradients: dict[int, Tensor] = field(default_factory=dict)
    roots: list[Any] = field(default_factory=list)


# Makes tensors, and their kind, of what the module returns: those that travel on, or the loss.
Finished = Callable[[Flight, Any], tuple[str, list[Tensor]]]


class Passes:
    """Computes with the module of a stage and keeps the graph between the two passes.

    `stashed`: backward passes are at the weights of their forward passes; else at the newest, with `correction` at
    these, corrected. A graph refers to memory: what is in it, older weights or the newest, is left to Weights.
    `numbers`: around passes, RandomNumbers.
    """

    flight = Flight

    def __init__(
        self,
        module: nn.Module,
        weights: Weights,
        finish: Finished,
        numbers: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._numbers = numbers
        self.stashed = False
        self.correction: Correction | None = None
        self._module, self._weights, self._finish = module, weights, finish
        # What came from another stage depends on it, so that it has a graph; nobody asks for its gradient.
        self._anchor = torch.empty(0, requires_grad=True)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the weights and the random numbers of the stage to passes."""
        with self._weights.lent(), self._numbers():
            yield

    def forward(self, flight: Flight) -> tuple[list[Tensor], list[bool]]:
        """What the stage hands on, and for which of it gradients will come; in the order of `backward`'s."""
        outputs = self._with_graph(flight)
        graph = [one for one in outputs if one.requires_grad]
        flight.roots = [get_gradient_edge(one) for one in graph]
        if self.correction is not None:
            saved.replace(graph, flight.version.aliases, self.correction.corrected)
        return outputs, [one.requires_grad for one in outputs]

    def backward(self, flight: Flight, gradients: Sequence[Tensor] | None) -> list[Tensor]:
        """Add to the gradients of the parameters; return those of the differentiable inputs.

        `gradients`: of the outputs that wanted them, or None for a loss.
        """
        self._backward(flight, gradients)
        return [
            _laid_out(flight.gradients.get(number), one)
            for number, one in enumerate(flight.inputs)
            if flight.differentiable[number]
        ]

    def evaluate(self, flight: Flight) -> list[Tensor]:
        """What the stage hands on, of a micro-batch that has no backward pass."""
        with torch.no_grad():
            return self._outputs(flight, flight.inputs)

    def _backward(self, flight: Flight, gradients: Sequence[Tensor] | None) -> None:
        given: Sequence[Tensor | None] = [None] * len(flight.roots) if gradients is None else gradients
        pairs = [(root, one) for root, one in zip(flight.roots, given, strict=True) if root is not None]
        if pairs:
            ends, given = [root for root, _ in pairs], [one for _, one in pairs]
            self._weights.accumulate(flight.version, lambda: torch.autograd.backward(ends, given))

    def _with_graph(self, flight: Flight) -> list[Tensor]:
        """Compute; the backward pass through it will leave gradients of inputs with the flight."""
        if not torch.is_grad_enabled():
            with torch.enable_grad():
                return self._with_graph(flight)
        inputs = [
            _Arrived.apply(self._anchor, one, number, flight.gradients) if flight.differentiable[number] else one
            for number, one in enumerate(flight.inputs)
        ]
        return self._outputs(flight, inputs)

    def _outputs(self, flight: Flight, inputs: Sequence[Tensor]) -> list[Tensor]:
        self._weights.use(flight.version)
        flight.output_kind, outputs = self._finish(flight, self._module(trees.whole(flight.kind, inputs)))
        return outputs


def _laid_out(gradient: Tensor | None, tensor: Tensor) -> Tensor:
    """`gradient` in the memory layout of `tensor`, which is how the other end takes it; zeros if there is none."""
    if gradient is None:
        return torch.zeros_like(tensor)
    if gradient.stride() == tensor.stride():
        return gradient
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(gradient)


class _Arrived(torch.autograd.Function):
    """A tensor that came from another stage: no leaf, so that layers may change it in place as they could in one
    model.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensor: Tensor, number: int, gradients: dict[int, Tensor]) -> Tensor:
        ctx.number, ctx.gradients = number, gradients
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.gradients[ctx.number] = gradients[0]
        return None, None, None, None
