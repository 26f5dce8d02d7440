"""The driver of merging against a fake of the bridge: its requests, their times, and its reports.

The measured gradients, in the order of their numbers, are a, loss (not in every step), c, d and b. d and c appear
together, b and a ten milliseconds later; the best plan sends each pair as one message, and all times follow by hand.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.fusion import CostModel, Gradient, driver, offer, plan_file
from paceline.fusion.armed import ArmedReport
from paceline.fusion.bridge import Bridge, ControlOp, Measurement, Own, PlanState, Status, Tensor
from paceline.fusion.driver import DISAGREEMENT_LOOKS, MOST_FITS, OFFER_STEPS, Driver, Limits, State
from paceline.fusion.offer import EXPECTED
from paceline.fusion.resolve import resolve

BYTES = 100_000
TENSORS = [Tensor("a", BYTES, 0), Tensor("loss", 4, 0), *(Tensor(name, BYTES, 0) for name in "cdb")]
READY_S = [10.1e-3, None, 0.1e-3, 0.0, 10e-3]
PAIRS = [1, -1, 0, 0, 1]
LIMITS = Limits(warmup_steps=10, watch_steps=100, time_limit_s=20, gate_timeout_s=0.5)
# Two messages of two cycles each wait for the threshold; the cycle is slower than a message.
STATUS = Status(
    rank=0, size=2, agreed=True, plans=True, steps=0, version=0, expired=0, threshold_bytes=150_000, cycle_s=8e-3,
    serial=1,
)  # fmt: skip


def measured(start_up_s: float = 5e-3, steps: int = 24, **changes: Any) -> Measurement:
    """A message takes `start_up_s`, one millisecond of which is its coordination, and 10 ns per byte."""
    samples = [(float(size), start_up_s - 1e-3 + 1e-8 * size) for size in (4096, 32768, 150_000)]
    found = Measurement(0, TENSORS, READY_S, 30e-3, 1e-3, samples, steps, samples, samples)
    return replace(found, **changes)


class FakeBridge(Bridge):
    """Fake of Horovod's library: records requests, and returns the test's answers."""

    def __init__(self, process_set: int = 0, status: Status | None = STATUS) -> None:
        self.sets = {process_set: status}
        self.digests: list[int | None] = []
        self.answer: Measurement | str | None = None
        self.tensors: list[Tensor] | None = TENSORS
        self.last = Own(0, -1.0, -1.0, -1.0)
        self.report = ArmedReport()
        self.asked: list[tuple[int, ControlOp, list[float]]] = []
        self.wanted: list[int] = []
        self._numbers = {ControlOp.MEASURE: -1}
        self._number = 6

    def want_armed(self, armed: bool) -> None:
        self.armed_wanted = armed

    def want(self, policy: int) -> None:
        self.wanted.append(policy)

    def process_sets(self) -> list[int]:
        return list(self.sets)

    def ask(self, process_set: int, kind: ControlOp, values: Sequence[float] = ()) -> int:
        self.asked.append((process_set, kind, list(values)))
        self._number += 1
        self._numbers[kind] = self._number
        return self._number

    def status(self, process_set: int) -> Status | None:
        return self.sets.get(process_set)

    def agreement(self, process_set: int) -> list[int | None]:
        return self.digests

    def plan(self, process_set: int) -> PlanState | None:
        return None if self.tensors is None else PlanState(0, False, [], [], [], self.tensors)

    def own(self, process_set: int) -> Own:
        return self.last

    def armed(self) -> ArmedReport:
        return self.report

    def measurement(self, process_set: int, number: int) -> Measurement | str | None:
        assert number == self._numbers[ControlOp.MEASURE]
        return self.answer


class Run:
    def __init__(self, policy: Any = "optimal", process_set: int = 0, limits: Limits = LIMITS, **status: Any) -> None:
        self.bridge = FakeBridge(process_set, replace(STATUS, **status))
        self.lines: list[str] = []
        self.process_set = process_set
        self.driver = Driver(self.bridge, process_set, resolve(policy), limits, 1, self.lines.append)

    @property
    def status(self) -> Status:
        status = self.bridge.sets[self.process_set]
        assert status is not None
        return status

    def look(self, later: int = 0, **changes: Any) -> State:
        """The state after one poll, `later` steps later."""
        steps = self.status.steps + later
        self.bridge.sets[self.process_set] = replace(self.status, steps=steps, **changes)
        self.driver.look()
        return self.driver.state

    def looks(self, *later: int, **changes: Any) -> str:
        """States after polls, each a given number of steps later."""
        return " ".join(self.look(steps, **changes).name for steps in later)

    def to(self, state: State, answer: Measurement | str | None = None) -> Run:
        """Go on as ranks that agree, until `state` is reached."""
        self.bridge.answer = answer or measured()
        for _ in range(20):
            offered = self.bridge.asked[-1][2][0] if self.driver.state is State.OFFERING else self.status.version
            if self.look(100, agreed=True, plans=True, version=int(offered)) is state:
                return self
        raise AssertionError(f"{state} was not reached")

    def calls(self) -> list[ControlOp]:
        return [call for _, call, _ in self.bridge.asked]

    def group_of(self) -> list[int]:
        return groups_sent(self.bridge.asked[-1][2])


def groups_sent(values: Sequence[float], tensors: int = len(TENSORS)) -> list[int]:
    """Return the group of each tensor; in `values` the numbers of parts follow."""
    return [int(value) - 1 for value in values[-2 * tensors : -tensors]]


def test_way_to_a_plan() -> None:
    run = Run(steps=50)
    assert run.driver.state is State.AGREEING
    assert run.looks(0, 2) == "WARMING WARMING" and run.bridge.asked == []
    assert run.looks(1, 10) == "SWEEPING SWEEPING" and run.calls() == [ControlOp.SWEEP]
    assert run.looks(1, 7) == "MEASURING MEASURING"
    assert run.bridge.asked[1:] == [(0, ControlOp.MEASURE, [])] and run.lines == []
    run.bridge.answer = measured()
    assert run.looks(0, 3) == "OFFERING OFFERING"
    assert run.look(version=1) is State.ACTIVE
    assert run.calls() == [ControlOp.SWEEP, ControlOp.MEASURE, ControlOp.PLAN]
    assert run.driver.reason == ""
    assert run.lines == [
        "fusion=optimal: 4 gradients in 2 messages, expected step 37.0 ms, 21.1% below Horovod's own merging (46.9 ms)."
    ]


def test_plans_that_are_not_to_be_followed_are_not_made_and_costs_are_kept() -> None:
    run = Run(limits=replace(LIMITS, follow=False))
    fast = [(4096.0, 2e-3), (4096.0, 1e-3), (150_000.0, 3e-3)]
    run.to(State.REFUSED, measured(fast_sweeps=fast))
    assert run.calls() == [ControlOp.SWEEP, ControlOp.MEASURE] and run.lines == []
    costs = run.driver.costs
    assert costs is not None and costs.coordination_s == 1e-3 and costs.work_s == 0.0
    assert costs.stock == tuple(measured().sweeps) and costs.armed == ((4096.0, 1e-3), (150_000.0, 3e-3))
    assert run.look(1000) is State.REFUSED


def test_plan_is_sent_in_the_layout_of_the_core() -> None:
    process_set, call, values = Run().to(State.OFFERING).bridge.asked[-1]
    assert (process_set, call) == (0, ControlOp.PLAN)
    # Each pair: one millisecond of coordination, 4 of start-up and 2 of bytes; so b and a end at 10.1 + 7. Horovod
    # begins with d at 0, c at 8, b and a at 16, and needs 5, 5, and 1 + 2 * 5.
    step_s, exposed_s, stock_step_s = 37e-3, 7e-3, 30e-3 + 27e-3 - 10.1e-3
    expected = [step_s, exposed_s, stock_step_s, 4e-3, 1e-8, 1e-3, 30e-3, 2.0]
    header = [1.0, 1.0, 0.5, len(TENSORS)]
    moved = [value + 1 for value in [*expected, *PAIRS]]
    assert values == pytest.approx([*header, *moved, *[1.0] * len(TENSORS)], rel=0, abs=1e-12)
    assert [value.hex() for value in offer.encode(3, False, 0.25, [-2.0, 0.0, 0.5], [1, -2], [4, 1])] == [
        value.hex() for value in (3.0, 0.0, 0.25, 2.0, 0.0, 1.0, 1.5, 2.0, 0.0, 4.0, 1.0)
    ]
    # Core expects as many values as the driver sends.
    source = Path(driver.__file__).parents[1] / "core" / "fusion" / "merge_plan.h"
    found = re.search(r"kExpectations = (\d+);", source.read_text())
    assert found is not None
    assert int(found[1]) == len(EXPECTED)


@pytest.mark.parametrize(
    ("threshold_bytes", "tensors", "sizes"),
    [
        (150_000, TENSORS, [4096] * 3 + [32768] * 3 + [150_000]),
        (64 << 20, TENSORS, [4096] * 3 + [32768] * 3 + [262144] * 3 + [400_004]),
        (64 << 20, [Tensor("large", 1 << 30, 0)],
         [4096] * 3 + [32768] * 3 + [262144] * 3 + [2 << 20] * 2 + [16 << 20, 32 << 20]),
        (24 << 20, [Tensor("large", 1 << 30, 0)],
         [4096] * 3 + [32768] * 3 + [262144] * 3 + [2 << 20] * 2 + [16 << 20, 24 << 20]),
        (64 << 20, [Tensor("exact", 32768, 0)], [4096] * 3 + [32768]),
        (64 << 20, [Tensor("small", 112, 0)], [4096] * 3 + [32768]),
        (0, TENSORS, [4096] * 3 + [32768]),
        (64 << 20, None, [4096] * 3 + [32768]),
    ],
    ids=["threshold", "all gradients", "large", "threshold of a large model", "a size of the sweep",
         "a small model", "no merging", "nothing known"],
)  # fmt: skip
def test_sweep_has_several_sizes_up_to_all_gradients_or_the_threshold(
    threshold_bytes: int, tensors: list[Tensor] | None, sizes: list[float]
) -> None:
    run = Run(threshold_bytes=threshold_bytes)
    run.bridge.tensors = tensors
    run.to(State.SWEEPING)
    assert run.bridge.asked == [(0, ControlOp.SWEEP, sizes)]


@pytest.mark.parametrize(
    "answer",
    ["the ranks could not measure together", measured(steps=1), measured(steps=0, ready_s=[None] * len(TENSORS))],
    ids=["failed", "early", "another rank counts anew"],
)
def test_measurement_that_cannot_be_used_is_repeated(answer: Measurement | str) -> None:
    run = Run().to(State.MEASURING)
    run.bridge.answer = answer
    assert run.looks(0, 9, 1) == "SWEEPING SWEEPING MEASURING"
    run.bridge.answer = measured(steps=2)
    assert run.look() is State.OFFERING
    assert run.calls() == [ControlOp.SWEEP, ControlOp.MEASURE, ControlOp.MEASURE, ControlOp.PLAN]
    assert len(run.lines) == 1


def omitting(gradients: Any, model: CostModel) -> Any:
    return [["a", "b"], ["d"]]


def too_slow(gradients: Any, model: CostModel) -> Any:
    threading.Event().wait(5)


@pytest.mark.parametrize(
    ("policy", "answer", "fault"),
    [
        (omitting, measured(), "policy omitting omits the tensor c"),
        (lambda gradients, model: [["a", "b", "c", "d", "loss"]], measured(), "has a tensor loss in group 0"),
        (too_slow, measured(), "policy too_slow took longer than 0.05 s"),
        ("optimal", measured(ready_s=[None] * len(TENSORS)), "There is no gradient to plan for"),
    ],
)
def test_refusal_keeps_the_reason_and_reports_it(policy: Any, answer: Measurement, fault: str) -> None:
    limits = replace(LIMITS, time_limit_s=0.05) if policy is too_slow else LIMITS
    run = Run(policy, limits=limits).to(State.REFUSED, answer)
    (line,) = run.lines
    assert fault in run.driver.reason
    assert line == f"fusion={resolve(policy).name}: {run.driver.reason} Horovod's own merging is used."
    run.bridge.answer = measured()
    assert run.look(1000) is State.REFUSED
    assert run.calls() == [ControlOp.SWEEP, ControlOp.MEASURE]
    assert len(run.lines) == 1


def test_policy_sees_regular_tensors_only_and_the_cost_of_a_message(tmp_path: Path) -> None:
    seen: list[Any] = []

    def watching(gradients: Sequence[Gradient], model: CostModel) -> Any:
        seen.append(([(one.name, one.bytes, one.ready_s, one.type) for one in gradients], model(1e6)))
        return [["a", "c"], ["d", "b"]]

    types = [replace(tensor, type=number) for number, tensor in enumerate(TENSORS)]
    run = Run(watching).to(State.OFFERING, measured(tensors=types))
    gradients, cost_s = seen[0]
    assert gradients == [(TENSORS[n].name, BYTES, READY_S[n], n) for n in (3, 2, 4, 0)]
    assert cost_s == pytest.approx(1e-3 + 4e-3 + 10e-3)
    assert run.group_of() == [1, -1, 1, 0, 0]  # the group whose last member is ready first is sent first
    plan_file.write(tmp_path / "plan.json", "mine", [["a", "c"], ["d", "b"]])
    assert Run(f"file:{tmp_path / 'plan.json'}").to(State.OFFERING).group_of() == [0, -1, 0, 1, 1]


@pytest.mark.parametrize(
    ("gate_timeout_s", "ready_s", "timeout_s"),
    [
        (0.5, READY_S, 0.5),
        (0.01, READY_S, 3 * 9.9e-3),
        (0.01, [0.03, None, 0.01, 0.0, 0.05], 3 * 0.02),
        (0.01, [None, None, None, 0.0, None], 0.01),
    ],
    ids=["gate", "pause", "another pause", "one tensor"],
)
def test_timeout_of_the_gate(gate_timeout_s: float, ready_s: list[float | None], timeout_s: float) -> None:
    run = Run(limits=replace(LIMITS, gate_timeout_s=gate_timeout_s))
    run.to(State.OFFERING, measured(ready_s=ready_s))
    assert run.bridge.asked[-1][2][2] == pytest.approx(timeout_s)


@pytest.mark.parametrize(("process_set", "groups"), [(0, [0, -1, 0, 0, 0]), (3, PAIRS)])
def test_groups_stay_below_the_threshold_in_smaller_process_sets(process_set: int, groups: list[int]) -> None:
    run = Run("single", process_set, threshold_bytes=2 * BYTES).to(State.OFFERING)
    assert run.group_of() == groups
    assert {asked for asked, _, _ in run.bridge.asked} == {process_set}
    where = " in process set 3" if process_set else ""
    assert run.lines[0].startswith(f"fusion=single{where}: 4 gradients in {max(groups) + 1} message")
    assert run.lines[0].endswith("Horovod's own merging (42.9 ms).")  # b and a fit into one message


def test_plan_follows_the_gradients_that_there_are_now() -> None:
    # b has become irregular, e is new. d and c end at 7.1 ms; e alone then ends at 13.1 and a at 19.1.
    tensors = [*TENSORS, Tensor("e", BYTES, 0)]
    now = measured(tensors=tensors, ready_s=[*READY_S[:4], None, 5e-3])
    model = CostModel.linear(4e-3, 1e-8)
    exposed_s = driver.predicted_s([["d", "c"], ["b", "a"]], now, model)
    assert exposed_s == pytest.approx(19.1e-3 - 10.1e-3)
    run = Run().to(State.WATCHING)
    run.bridge.answer = now
    assert run.look() is State.OFFERING  # e and a together end at 17.1 ms
    assert groups_sent(run.bridge.asked[-1][2], 6) == [1, -1, 0, 0, -1, 1]


ALIKE = measured(samples=[(4096.0, 1.0)] * 2)


@pytest.mark.parametrize("state", [State.ACTIVE, State.WATCHING])
def test_plan_that_is_gone_is_made_again(state: State) -> None:
    run = Run().to(state)
    # The ranks disagreed and agreed again between two polls: the library follows no plan any more.
    assert run.look(version=0) is State.AGREEING
    run.to(State.ACTIVE)
    assert run.status.version == 2
    assert len(run.lines) == 2


def test_plans_that_never_come_into_force_and_ranks_that_nobody_has_heard() -> None:
    run = Run().to(State.OFFERING)
    assert run.looks(OFFER_STEPS - 1, 1) == "OFFERING AGREEING"
    run.to(State.ACTIVE)
    assert run.calls().count(ControlOp.PLAN) == 2
    # Ranks without a report are not mentioned.
    run = Run(agreed=False)
    run.looks(*[1] * 2 * DISAGREEMENT_LOOKS)
    assert run.lines == []
    run.bridge.digests = [1, None]
    run.look(1)
    assert len(run.lines) == 1


def test_costs_that_cannot_be_fitted_are_measured_again_until_that_is_a_refusal() -> None:
    run = Run()
    for agreements in (1, 2):
        run.to(State.MEASURING)
        for _ in range(MOST_FITS - 1):
            run.bridge.answer = ALIKE
            assert run.looks(0, 100) == "SWEEPING MEASURING"
        if agreements == 1:
            run.look(agreed=False)
            run.look(agreed=True)
    assert run.lines == []
    run.bridge.answer = measured()
    assert run.look() is State.OFFERING
    assert run.calls().count(ControlOp.SWEEP) == 2 * MOST_FITS and len(run.lines) == 1
    run = Run().to(State.REFUSED, ALIKE)
    assert run.calls().count(ControlOp.MEASURE) == MOST_FITS
    assert "No cost can be fitted" in run.driver.reason


def failing_later(gradients: Any, costs: Any) -> list[list[str]]:
    """Plans once."""
    failing_later.calls += 1  # type: ignore[attr-defined]
    if failing_later.calls > 1:  # type: ignore[attr-defined]
        raise KeyError("conv7.weight")
    return [[gradient.name for gradient in gradients]]


def test_every_message_is_one_line_and_said_once() -> None:
    failing_later.calls = 0  # type: ignore[attr-defined]
    run = Run(failing_later).to(State.ACTIVE)
    assert "4 gradients in 1 message," in run.lines[0]
    for _ in range(5):
        run.to(State.WATCHING)
        run.look()
    assert failing_later.calls == 6  # type: ignore[attr-defined]
    assert len(run.lines) == 2
    assert "conv7.weight" in run.lines[1] and run.lines[1].endswith("The last plan stays.")
    refused = Run(failing_later).to(State.REFUSED)
    assert refused.lines[0].endswith("Horovod's own merging is used.")
    assert not any("\n" in line for line in run.lines + refused.lines)


def test_small_process_sets_without_a_buffer_merge_nothing() -> None:
    run = Run(process_set=1, threshold_bytes=0).to(State.OFFERING)
    planned = [group for group in run.group_of() if group >= 0]
    assert len(planned) == len(set(planned)) == 4
