"""Encoding of a plan for all ranks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from paceline.core._core import CostModel
from paceline.fusion.bridge import Measurement
from paceline.fusion.parts import with_parts
from paceline.fusion.planning import Plan
from paceline.registry.policies import THRESHOLD

# Minimum timeout of a gate, in units of the longest pause between two gradients.
TIMEOUT_PAUSES = 3.0
# Names of a plan's expected values, in order (core/fusion/merge_plan.h).
EXPECTED = ("step_s", "exposed_s", "stock_step_s", "a_s", "b_s_per_byte", "coordination_s", "compute_s", "messages")


@dataclass(frozen=True)
class Offer:
    """A plan to send.

    Attributes:
        group_of: group of each tensor of the measurement, negative for none.
        parts_of: number of parts of each tensor.
        expected: expected values, in the order of EXPECTED.
        timeout_s: timeout of a gate.
    """

    group_of: list[int]
    parts_of: list[int]
    expected: list[float]
    timeout_s: float

    @classmethod
    def of(cls, measured: Measurement, model: CostModel, plan: Plan, gate_timeout_s: float) -> Offer:
        """Return the offer of a plan, from its measurement and the fitted costs."""
        number_of = {tensor.name: number for number, tensor in enumerate(measured.tensors)}
        group_of, parts_of = [-1] * len(measured.tensors), [1] * len(measured.tensors)
        for group, (names, parts) in enumerate(with_parts(plan.named_groups)):
            for name in names:
                group_of[number_of[name]], parts_of[number_of[name]] = group, parts
        chosen, stock = plan.predicted[plan.policy], plan.predicted[THRESHOLD]
        expected = {
            "step_s": measured.compute_s + chosen.exposed_s,
            "exposed_s": chosen.exposed_s,
            "stock_step_s": measured.compute_s + stock.exposed_s,
            "a_s": model.a_s,
            "b_s_per_byte": model.b_s_per_byte,
            "coordination_s": measured.coordination_s,
            "compute_s": measured.compute_s,
            "messages": float(chosen.messages),
        }
        at = sorted(at for at in measured.ready_s if at is not None)
        pause_s = max((after - before for before, after in itertools.pairwise(at)), default=0.0)
        timeout_s = max(gate_timeout_s, TIMEOUT_PAUSES * pause_s)
        return cls(group_of, parts_of, [expected[name] for name in EXPECTED], timeout_s)

    def values(self, version: int, active: bool) -> list[float]:
        """Return the numbers to send; if not `active`, Horovod merges, and no tensor is in a group."""
        group_of = self.group_of if active else [-1] * len(self.group_of)
        return encode(version, active, self.timeout_s, self.expected, group_of, self.parts_of if active else None)


def encode(
    version: int,
    active: bool,
    timeout_s: float,
    expected: list[float],
    group_of: list[int],
    parts_of: list[int] | None = None,
) -> list[float]:
    """Encode a plan as numbers (core/fusion/merge_plan.h: DecodePlan). Without `parts_of`, all tensors are whole."""
    return [
        float(version), float(active), timeout_s, float(len(group_of)),
        *(value + 1 if value >= 0 else 0.0 for value in expected),
        *(group + 1.0 if group >= 0 else 0.0 for group in group_of),
        *map(float, parts_of or [1] * len(group_of)),
    ]  # fmt: skip
