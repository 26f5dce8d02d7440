"""A plan as it is sent to all ranks."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from paceline.core._core import CostModel
from paceline.fusion.bridge import Measurement
from paceline.fusion.parts import with_parts
from paceline.fusion.planning import Plan
from paceline.registry.policies import THRESHOLD

# A gate waits at least this many times the longest pause between two gradients.
PATIENCE_PAUSES = 3.0
# What a plan's expectations are, in order (core/fusion/merge_plan.h).
EXPECTED = ("step_s", "exposed_s", "stock_step_s", "a_s", "b_s_per_byte", "coordination_s", "compute_s", "messages")


@dataclass(frozen=True)
class Offer:
    """`group_of`: the group of each tensor of the measurement, negative for none, and in `parts_of` how many parts it
    goes in. `expected`: as EXPECTED.
    """

    group_of: list[int]
    parts_of: list[int]
    expected: list[float]
    patience_s: float

    @classmethod
    def of(cls, measured: Measurement, model: CostModel, plan: Plan, gate_timeout_s: float) -> Offer:
        """What is sent of a plan that was made from a measurement and the costs that fit it."""
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
        patience_s = max(gate_timeout_s, PATIENCE_PAUSES * pause_s)
        return cls(group_of, parts_of, [expected[name] for name in EXPECTED], patience_s)

    def values(self, version: int, active: bool) -> list[float]:
        """What travels; not `active`: Horovod merges, and nothing is in a group."""
        group_of = self.group_of if active else [-1] * len(self.group_of)
        return encode(version, active, self.patience_s, self.expected, group_of, self.parts_of if active else None)


def encode(
    version: int,
    active: bool,
    patience_s: float,
    expected: list[float],
    group_of: list[int],
    parts_of: list[int] | None = None,
) -> list[float]:
    """A plan as it travels (core/fusion/merge_plan.h: DecodePlan). No `parts_of`: all tensors are whole."""
    return [
        float(version), float(active), patience_s, float(len(group_of)),
        *(value + 1 if value >= 0 else 0.0 for value in expected),
        *(group + 1.0 if group >= 0 else 0.0 for group in group_of),
        *map(float, parts_of or [1] * len(group_of)),
    ]  # fmt: skip
