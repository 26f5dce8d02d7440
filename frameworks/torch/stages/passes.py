"""Forward and backward passes of one stage, at the requested weights."""

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
    """A micro-batch on PyTorch.

    `gradients`: of the differentiable inputs, by number, from the backward pass. `roots`: start of the backward pass
    for each output that needs a gradient; None where nothing depends on it.
    """

    gradients: dict[int, Tensor] = field(default_factory=dict)
    roots: list[Any] = field(default_factory=list)


# Converts the module's return value to a kind and tensors: outputs for the next stage, or the loss.
Finished = Callable[[Flight, Any], tuple[str, list[Tensor]]]


class Passes:
    """Computes with the module of a stage and keeps the graph between the two passes.

    `stashed`: backward passes use the weights of their forward passes. Otherwise they use the newest weights, corrected
    by `correction` if there is one. A graph refers to memory; Weights decides whether older or newest weights are in
    it. `numbers`: RandomNumbers, a context around passes.
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
        # Tensors from another stage depend on it, so that they have a graph; its own gradient is never used.
        self._anchor = torch.empty(0, requires_grad=True)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the weights and the random numbers of the stage to passes."""
        with self._weights.lent(), self._numbers():
            yield

    def forward(self, flight: Flight) -> tuple[list[Tensor], list[bool]]:
        """Return the outputs, and which of them will get gradients, in the order of `backward`'s."""
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
        """Return the outputs of a micro-batch without a backward pass."""
        with torch.no_grad():
            return self._outputs(flight, flight.inputs)

    def _backward(self, flight: Flight, gradients: Sequence[Tensor] | None) -> None:
        given: Sequence[Tensor | None] = [None] * len(flight.roots) if gradients is None else gradients
        pairs = [(root, one) for root, one in zip(flight.roots, given, strict=True) if root is not None]
        if pairs:
            ends, given = [root for root, _ in pairs], [one for _, one in pairs]
            self._weights.accumulate(flight.version, lambda: torch.autograd.backward(ends, given))

    def _with_graph(self, flight: Flight) -> list[Tensor]:
        """Compute with a graph, whose backward pass stores the gradients of inputs in the flight."""
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
    """Return `gradient` in the memory layout of `tensor`, as the receiver expects it; zeros if it is None."""
    if gradient is None:
        return torch.zeros_like(tensor)
    if gradient.stride() == tensor.stride():
        return gradient
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(gradient)


class _Arrived(torch.autograd.Function):
    """Tensor from another stage as a non-leaf, so that layers may change it in place as in an uncut model."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensor: Tensor, number: int, gradients: dict[int, Tensor]) -> Tensor:
        ctx.number, ctx.gradients = number, gradients
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.gradients[ctx.number] = gradients[0]
        return None, None, None, None
