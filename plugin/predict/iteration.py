"""Seconds per iteration of data-parallel training, synchronous and pipelined, in the symbols of Pipe-SGD.

Li et al., "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training", NeurIPS 2018. An
iteration is the update l_up, the forward pass l_for, the backward pass l_back and the communication l_comm, with
l_comp = l_for + l_back. T iterations take T times the returned values; like the paper, these omit the K - 1 iterations
that fill the pipeline.

A policy of the planner names the merging of gradients into messages. The paper has two: *sequential*, one all-reduce
after the backward pass, is the planner's `single`; *layer-wise*, one for every layer, is its `none`. The cost of
all-reduces, which depends on the number of workers p, is a cost model: `fusion.costs.of_algorithm` for theory, or
fitted to measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.config import nearest
from paceline.core import _core
from paceline.core._core import CostModel
from paceline.errors import UserError
from paceline.fusion.gradient import Gradient, check
from paceline.pipelined.settings import Pipelined
from paceline.registry.policies import BUILT_IN, THRESHOLD

SEQUENTIAL = "single"
LAYER_WISE = "none"
# Horovod's own merging depends on cycles and rounds, which this model omits; planning.py simulates it.
POLICIES = tuple(name for name in BUILT_IN if name != THRESHOLD)


@dataclass(frozen=True)
class Iteration:
    """One iteration of the slowest worker; all l_*_s are seconds.

    `gradients` are those of the layers, with `ready_s` since the beginning of the backward pass. `costs`: seconds of
    one message among the workers, as a function of its bytes, with the preceding coordination or synchronisation (the
    paper's S).

    Raises UserError for times that are negative or not finite, and for a gradient that comes after the backward pass.
    """

    l_up_s: float
    l_for_s: float
    l_back_s: float
    gradients: tuple[Gradient, ...]
    costs: CostModel

    def __post_init__(self) -> None:
        for name in ("l_up_s", "l_for_s", "l_back_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise UserError(f"{name} cannot be {value}.", "Give a finite time of at least 0, in seconds.")
        check(self.gradients)
        last = max(self.gradients, key=lambda gradient: gradient.ready_s)
        if last.ready_s > self.l_back_s:
            raise UserError(
                f"The tensor {last.name} is ready at {last.ready_s} s of a backward pass of {self.l_back_s} s.",
                "Count ready_s from the beginning of the backward pass, and let l_back_s include the last gradient.",
            )

    @property
    def compute_s(self) -> float:
        """l_up + l_comp: time of the compute resource in an iteration."""
        return self.l_up_s + self.l_for_s + self.l_back_s

    def step_s(self, finish_s: float) -> float:
        """Return the time of a synchronous iteration whose messages end `finish_s` after the backward pass began."""
        return self.l_up_s + self.l_for_s + max(self.l_back_s, finish_s)


def of_layers(
    l_up_s: float, l_for_s: float, l_back_s: float, layer_bytes: Sequence[int], costs: CostModel
) -> Iteration:
    """Return an iteration from the layers' sizes, in order of the backward pass, which takes equally long for each.

    Raises UserError as Iteration does.
    """
    count = len(layer_bytes)
    gradients = tuple(
        Gradient(f"layer {number}", size, l_back_s * (number / count))
        for number, size in enumerate(layer_bytes, start=1)
    )
    return Iteration(l_up_s, l_for_s, l_back_s, gradients, costs)


def communication_s(iteration: Iteration, policy: str = SEQUENTIAL) -> float:
    """Return l_comm: all messages of an iteration in sequence. Raises UserError for an unknown policy."""
    groups = _groups(iteration, policy)
    return _finish_s(iteration, groups, [0.0] * len(iteration.gradients))


def synchronous_s(iteration: Iteration, policy: str = SEQUENTIAL) -> float:
    """Return the time of D-Sync: sequentially l_up + l_comp + l_comm; other policies overlap messages with computation.

    PS-Sync has the same form, with costs from `parameter_server_costs`. Raises UserError for an unknown policy.
    """
    ready_s = [gradient.ready_s for gradient in iteration.gradients]
    return iteration.step_s(_finish_s(iteration, _groups(iteration, policy), ready_s))


def pipelined_s(iteration: Iteration, policy: str = SEQUENTIAL, k: int = 2) -> float:
    """Return the time of Pipe-SGD on one compute and one network resource, max(l_up + l_comp, l_comm) for every K >= 2.

    K = 1 is D-Sync. Raises UserError for a K that no pipelined exchange can have, and for an unknown policy.
    """
    if Pipelined(k).k == 1:
        return synchronous_s(iteration, policy)
    return max(iteration.compute_s, communication_s(iteration, policy))


def pipelined_unlimited_s(iteration: Iteration, policy: str = SEQUENTIAL, k: int = 2) -> float:
    """Return the time of Pipe-SGD with unlimited resources, (l_up + l_comp + l_comm) / K: a lower bound.

    Raises UserError as `pipelined_s` does.
    """
    return (iteration.compute_s + communication_s(iteration, policy)) / Pipelined(k).k


def _groups(iteration: Iteration, policy: str) -> list[list[int]]:
    if policy not in POLICIES:
        raise UserError(f"There is no model of the policy {policy!r}.", nearest(policy, list(POLICIES)))
    ready_s = [gradient.ready_s for gradient in iteration.gradients]
    return _core.plan(policy, _bytes(iteration), ready_s, _types(iteration), iteration.costs)


def _finish_s(iteration: Iteration, groups: list[list[int]], ready_s: list[float]) -> float:
    return _core.predict(groups, _bytes(iteration), ready_s, _types(iteration), iteration.costs).finish_s


def _bytes(iteration: Iteration) -> list[float]:
    return [float(gradient.bytes) for gradient in iteration.gradients]


def _types(iteration: Iteration) -> list[int]:
    return [gradient.type for gradient in iteration.gradients]
