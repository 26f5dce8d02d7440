"""One function split into a forward pass and a backward pass with weights of its own.

A tape computes gradients from values it has kept, including weights. Here the graph of a function and its gradients
is cut instead. The forward part returns the tensors that the backward part needs, and weights are inputs of both
parts. Values that depend on weights alone, such as a cast or a transposed kernel, are recomputed from the weights of
the backward part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Made:
    """Return value of a traced function: outputs, and values without gradients."""

    outputs: list[tf.Tensor]
    others: list[tf.Tensor]


class Split:
    """`function(inputs, weights, others)`, lists of tensors, traced for tensors like these.

    `differentiable`: inputs whose gradients are requested. `wanted`: outputs that depend on them, or on weights, and
    therefore need gradients. `evaluated`: there will be no backward pass.
    """

    def __init__(
        self,
        function: Callable[[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]], Made],
        inputs: Sequence[tf.Tensor],
        weights: Sequence[tf.Tensor],
        others: Sequence[tf.Tensor],
        differentiable: Sequence[bool],
        scalar: bool,
        evaluated: bool,
    ) -> None:
        counts = len(inputs), len(inputs) + len(weights)
        seen: dict[str, Any] = {}

        def traced(*flat: tf.Tensor) -> tf.Tensor:
            given = list(flat[: counts[0]]), list(flat[counts[0] : counts[1]]), list(flat[counts[1] :])
            made = function(*given)
            asked = [one for one, wanted in zip(given[0], differentiable, strict=True) if wanted] + given[1]
            reached = _descendants(asked)
            wanted = [not evaluated and _floating(one) and one.op in reached for one in made.outputs]
            seeds = [
                tf.ones_like(one) if scalar else tf.compat.v1.placeholder(one.dtype, one.shape)
                for one, with_gradient in zip(made.outputs, wanted, strict=True)
                if with_gradient
            ]
            targets = [one for one, with_gradient in zip(made.outputs, wanted, strict=True) if with_gradient]
            gradients = tf.gradients(targets, asked, seeds) if targets and asked else [None] * len(asked)
            gradients = [None if one is None else tf.convert_to_tensor(one) for one in gradients]
            seen.update(given=given, made=made, wanted=wanted, seeds=seeds, gradients=gradients)
            return flat[0]

        flat = [*inputs, *weights, *others]
        whole = tf.compat.v1.wrap_function(traced, [tf.TensorSpec(one.shape, one.dtype) for one in flat])
        given, made, gradients = seen["given"], seen["made"], seen["gradients"]
        self.wanted: list[bool] = seen["wanted"]
        found = [one for one in gradients if one is not None]
        saved = _saved(made, found, given)
        self._forward = whole.prune([*given[0], *given[1], *given[2]], [made.outputs, made.others, saved])
        self._present = [one is not None for one in gradients]
        self._backward: Any = None
        if found:
            fed = [] if scalar else seen["seeds"]
            self._backward = whole.prune([*saved, *given[1], *fed], found)
        self._inputs = sum(differentiable)

    def forward(
        self, inputs: Sequence[tf.Tensor], weights: Sequence[tf.Tensor], others: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], list[tf.Tensor]]:
        """Return outputs, other values, and the tensors that `backward` needs."""
        outputs, returned, saved = self._forward(*inputs, *weights, *others)
        return list(outputs), list(returned), list(saved)

    def backward(
        self, saved: Sequence[tf.Tensor], weights: Sequence[tf.Tensor], gradients: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor | None], list[tf.Tensor | None]]:
        """Return gradients of the differentiable inputs and of the weights; None where nothing depends on them.

        `gradients`: of the `wanted` outputs; empty for a scalar.
        """
        found = iter(() if self._backward is None else self._backward(*saved, *weights, *gradients))
        all_found = [next(found) if present else None for present in self._present]
        return all_found[: self._inputs], all_found[self._inputs :]


def _saved(
    made: Made, gradients: Sequence[tf.Tensor], given: tuple[list[Any], list[Any], list[Any]]
) -> list[tf.Tensor]:
    """Tensors of the forward part that gradients need, except weights and values that depend on weights alone."""
    forward = _ancestors([*made.outputs, *made.others]) | {one.op for part in given for one in part}
    varying = forward & (_descendants([*given[0], *given[2]]) | _descendants_of_stateful(forward))
    kept: dict[str, tf.Tensor] = {}
    seen: set[Any] = set()
    waiting = []

    def need(tensor: tf.Tensor) -> None:
        if tensor.op in varying:
            # All outputs or none: copying a part of a graph requires it.
            kept.update((one.name, one) for one in tensor.op.outputs)
        else:
            waiting.append(tensor.op)

    for one in gradients:
        need(one)
    while waiting:
        operation = waiting.pop()
        if operation in seen:
            continue
        seen.add(operation)
        for one in operation.inputs:
            need(one)
        for before in operation.control_inputs:
            if before in varying and before.outputs:
                need(before.outputs[0])
            else:
                waiting.append(before)
    return [kept[name] for name in sorted(kept)]


def _floating(tensor: tf.Tensor) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def _ancestors(tensors: Iterable[tf.Tensor]) -> set[Any]:
    """Operations that these tensors depend on, including their own."""
    found: set[Any] = set()
    waiting = [one.op for one in tensors]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [one.op for one in operation.inputs]
            waiting += operation.control_inputs
    return found


def _descendants(tensors: Iterable[tf.Tensor]) -> set[Any]:
    """Operations that depend on these tensors, including their own."""
    return _following([one.op for one in tensors])


def _descendants_of_stateful(operations: Iterable[Any]) -> set[Any]:
    """Operations that depend on random numbers or on variables outside the function."""
    return _following([one for one in operations if one.type != "Placeholder" and one.op_def.is_stateful])


def _following(operations: Iterable[Any]) -> set[Any]:
    found: set[Any] = set()
    waiting = list(operations)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [user for output in operation.outputs for user in output.consumers()]
    return found
