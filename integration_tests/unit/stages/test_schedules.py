"""Schedules of stages: ticks as papers draw them, delays, utilisation and memory, and what cannot be followed."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.examples.reproduction.pipemare import PapersPipeDream, PapersPipeMare
from paceline.stages import corrections, schedules
from paceline.stages.check import check
from paceline.stages.costs import costs
from paceline.stages.delays import delays, most_late, paper_delays
from paceline.stages.flow import ScheduleError
from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule
from paceline.stages.schedules.gpipe import GPipe
from paceline.stages.schedules.pipemare import PipeMare
from paceline.stages.schedules.two_bw import TwoBW
from paceline.stages.simulate import Simulation, simulate, steady_steps

EVERY = [
    pytest.param(name, stages, microbatches, id=f"{name}-{stages}-{microbatches}")
    for name, stages, microbatches in product(schedules.SCHEDULES, range(1, 7), range(1, 10))
]


def drawn(schedule: Schedule, steps: int) -> list[str]:
    """A line for each stage, a word for each tick; passes take one tick, `*` marks an update."""
    shown = simulate(schedule, steps)
    lines = []
    for timed in shown.stages:
        words = [".."] * round(shown.end_s)
        for one in timed:
            instruction = one.instruction
            number = instruction.minibatch * schedule.microbatches + instruction.microbatch
            if instruction.kind is Kind.UPDATE:
                words[round(one.start_s) - 1] += "*"
            else:
                words[round(one.start_s)] = f"{instruction.kind.name[0]}{number}"
        lines.append(" ".join(words))
    return lines


# fmt: off
TABLES = {
    ("gpipe", 3, 3, 1): [
        "F0 F1 F2 .. .. .. .. B0 B1 B2*",
        ".. F0 F1 F2 .. .. B0 B1 B2* ..",
        ".. .. F0 F1 F2 B0 B1 B2* .. ..",
    ],
    ("1f1b", 3, 3, 1): [
        "F0 F1 F2 .. .. B0 .. B1 .. B2*",
        ".. F0 F1 .. B0 F2 B1 .. B2* ..",
        ".. .. F0 B0 F1 B1 F2 B2* .. ..",
    ],
    ("pipemare", 3, 2, 3): [
        "F0 F1 F2 .. .. B0 F3 B1* F4 B2 F5 B3* .. B4 .. B5*",
        ".. F0 F1 .. B0 F2 B1* F3 B2 F4 B3* F5 B4 .. B5* ..",
        ".. .. F0 B0 F1 B1* F2 B2 F3 B3* F4 B4 F5 B5* .. ..",
    ],
    ("pipemare_eager", 3, 2, 4): [
        "F0 F1 F2 F3 F4 B0 F5 B1* F6 B2 F7 B3* .. B4 .. B5* .. B6 .. B7*",
        ".. F0 F1 F2 B0 F3 B1* F4 B2 F5 B3* F6 B4 F7 B5* .. B6 .. B7* ..",
        ".. .. F0 B0 F1 B1* F2 B2 F3 B3* F4 B4 F5 B5* F6 B6 F7 B7* .. ..",
    ],
    # N < P - 1: no stage may be more than N ahead, for version t - 1 to be there.
    ("2bw", 3, 1, 3): [
        "F0 F1 .. .. .. B0* F2 .. .. B1* .. .. .. B2*",
        ".. F0 .. .. B0* F1 .. .. B1* F2 .. .. B2* ..",
        ".. .. F0 B0* .. .. F1 B1* .. .. F2 B2* .. ..",
    ],
}
# fmt: on


@pytest.mark.parametrize("key", TABLES, ids=str)
def test_ticks_are_those_that_papers_draw(key: tuple[str, int, int, int]) -> None:
    name, stages, microbatches, steps = key
    assert drawn(schedules.make(name, stages, microbatches), steps) == TABLES[key]


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_every_schedule_can_be_followed(name: str, stages: int, microbatches: int) -> None:
    schedule = schedules.make(name, stages, microbatches)
    for steps in (0, 1, 2, steady_steps(schedule)):
        check(schedule, steps)


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_loss_is_known_when_it_is_returned(name: str, stages: int, microbatches: int) -> None:
    """The last stage has the loss before any other ends its step, also if it is slow, and that of a step later not."""
    schedule = schedules.make(name, stages, microbatches)
    steps = steady_steps(schedule)
    shown = simulate(schedule, steps, forward_s=[1.0] * (stages - 1) + [100.0])
    known_s = {
        one.instruction.minibatch: one.end_s
        for one in shown.stages[-1]
        if one.instruction.kind is Kind.FORWARD and one.instruction.microbatch == microbatches - 1
    }
    for stage, timed in enumerate(shown.stages):
        ends_s = {one.instruction: one.end_s for one in timed}
        for step in range(schedule.loss_lag, steps):
            assert known_s[step - schedule.loss_lag] <= ends_s[schedule.of_step(stage, step)[-1]]
    if schedule.loss_lag:
        first = {one.instruction: one.end_s for one in shown.stages[0]}
        assert known_s[steps - schedule.loss_lag] > first[schedule.of_step(0, steps - 1)[-1]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("zigzag", 2, 2), "no schedule 'zigzag'"),
        (("gpipe", 0, 2), "0 stages"),
        (("1f1b", 2, 0), "0 micro-batches"),
        (("2bw", 2, -1), "-1 micro-batches"),
        (("pipemare", 2.5, 1), "2.5 stages"),
    ],
)
def test_what_cannot_be_made_is_refused(arguments: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        schedules.make(*arguments)


Steps = tuple[Instruction, ...]
F00 = Instruction(Kind.FORWARD, 0, 0)
F01 = Instruction(Kind.FORWARD, 0, 1)
B00 = Instruction(Kind.BACKWARD, 0, 0)
B01 = Instruction(Kind.BACKWARD, 0, 1)
U0 = Instruction(Kind.UPDATE, 0)


class Edited(GPipe):
    """GPipe of 2 stages and 2 micro-batches; stage 1 does something else in its first step."""

    def __init__(self, edit: Callable[[list[Instruction]], object]) -> None:
        super().__init__(2, 2)
        self._edit = edit

    def of_step(self, stage: int, step: int) -> Steps:
        whole = list(super().of_step(stage, step))
        if (stage, step) == (1, 0):
            self._edit(whole)
        return tuple(whole)


@pytest.mark.parametrize(
    ("edit", "what", "reason"),
    [
        (lambda whole: whole.remove(F01), B01, "before its FORWARD"),
        (lambda whole: whole.insert(1, F00), F00, "a second time"),
        (lambda whole: whole.insert(0, Instruction(Kind.FORWARD, 1, 0)), "0 of mini-batch 1", "step 0 does"),
        (lambda whole: whole.insert(0, Instruction(Kind.FORWARD, 0, 2)), "micro-batch 2", "step 0 does not have that"),
        (lambda whole: whole.remove(B00), B01, "micro-batch 0 of mini-batch 0 is next"),
        (lambda whole: whole.reverse(), U0, "after 0 times BACKWARD"),
        (lambda whole: whole.remove(U0), "step 0", "ends before the update"),
        (lambda whole: whole.append(Instruction(Kind.UPDATE, 0)), U0, "the UPDATE of mini-batch 1 is next"),
        (lambda whole: whole.insert(4, Instruction(Kind.UPDATE, 0, 1)), "UPDATE", "about a whole mini-batch"),
    ],
)
def test_wrong_order_is_refused(edit: Callable[[list[Instruction]], object], what: object, reason: str) -> None:
    with pytest.raises(ScheduleError) as found:
        check(Edited(edit), 2)
    assert found.value.stage == 1
    assert str(what) in str(found.value)
    assert reason in str(found.value)
    assert "gpipe, 2 stages, 2 micro-batches" in str(found.value)


class Stuck(PipeMare):
    """Stage 1 is further ahead than stage 0 lets it be."""

    def ahead(self, stage: int) -> int:
        return stage


class Left(PipeMare):
    """Nothing is drained."""

    def drain(self, stage: int, steps: int) -> Steps:
        return ()


class Late(PipeMare):
    """Keeps a FORWARD for the drain, which has no data for it."""

    def of_step(self, stage: int, step: int) -> Steps:
        return tuple(one for one in super().of_step(stage, step) if one != F00)

    def drain(self, stage: int, steps: int) -> Steps:
        return (F00, *super().drain(stage, steps))


class TooEarly(TwoBW):
    """PipeDream-2BW as far ahead as PipeMare."""

    def ahead(self, stage: int) -> int:
        return self.stages - 1 - stage


@pytest.mark.parametrize(
    ("schedule", "steps", "said"),
    [
        (Stuck(2, 2), 1, r"stage 0, BACKWARD of micro-batch 0 .* for ever for stage 1, .* FORWARD"),
        (Left(2, 2), 3, "stage 0, the end: 5 times BACKWARD, 6 are due"),
        (Late(3, 2), 1, "a drain has no FORWARD"),
        (TooEarly(4, 2), 4, r"stage 0, FORWARD .* needs weights after 1 updates, 0 are done"),
    ],
)
def test_schedules_that_cannot_end_or_begin_are_refused(schedule: Schedule, steps: int, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        check(schedule, steps)
    check(TooEarly(4, 3), 4)


@pytest.mark.parametrize(
    ("microbatches", "expected"), [(4, [1.75, 1.25, 0.75, 0.25]), (8, [0.875, 0.625, 0.375, 0.125])]
)
def test_papers_delays(microbatches: int, expected: list[float]) -> None:
    """papers.md 5.6, item 1."""
    taus = paper_delays(4, microbatches)
    assert taus == expected
    assert [here - there for here, there in pairwise(taus)] == [2 / microbatches] * 3


@pytest.mark.parametrize("stages", range(1, 7))
@pytest.mark.parametrize("microbatches", range(1, 10))
def test_papers_delays_are_those_of_the_papers_hardware(stages: int, microbatches: int) -> None:
    papers = pytest.approx(paper_delays(stages, microbatches))
    taus = delays(PapersPipeMare(stages, microbatches))
    assert [forward for forward, _ in taus] == papers
    assert [backward for _, backward in taus] == [0] * stages
    taus = delays(PapersPipeDream(stages, microbatches))
    assert [forward for forward, _ in taus] == papers
    assert [backward for _, backward in taus] == papers


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_delays_of_one_pass_at_a_time(name: str, stages: int, microbatches: int) -> None:
    taus = delays(schedules.make(name, stages, microbatches))
    late = [(stages - 1 - stage) / microbatches for stage in range(stages)]
    twice = [2 * tau for tau in late]
    by_one = [1.0 if stages > 1 else 0.0] * stages
    forward = {"pipedream": late, "pipemare": late, "pipemare_eager": twice, "2bw": by_one}.get(name, [0] * stages)
    backward = {"pipedream": late, "2bw": by_one}.get(name, [0] * stages)
    assert [tau for tau, _ in taus] == pytest.approx(forward)
    assert [tau for _, tau in taus] == pytest.approx(backward)


@pytest.mark.parametrize("stages", range(1, 7))
def test_with_enough_microbatches_no_weight_is_more_than_a_version_old(stages: int) -> None:
    enough = corrections.least_microbatches(stages)
    assert enough == 2 * stages - 1
    assert max(most_late(PapersPipeMare(stages, enough))) == 1
    if enough > 1:
        assert max(most_late(PapersPipeMare(stages, enough - 1))) == 2
    one_at_a_time = max(stages - 1, 1)
    assert max(most_late(schedules.make("pipemare", stages, one_at_a_time))) == min(1, stages - 1)
    schedule = schedules.make("pipemare", stages, 2)  # the mean, rounded up
    assert most_late(schedule) == [math.ceil(tau) for tau, _ in delays(schedule)]


def steady(schedule: Schedule, **times: float) -> Simulation:
    return simulate(schedule, steady_steps(schedule), **times)


@pytest.mark.parametrize(("name", "stages", "microbatches"), EVERY)
def test_formulas_of_costs(name: str, stages: int, microbatches: int) -> None:
    schedule = schedules.make(name, stages, microbatches)
    expected = costs(schedule)
    for backward_s in (1.0, 2.0):
        found = steady(schedule, backward_s=backward_s)
        assert found.weight_copies == expected.weight_copies
        assert found.activations == expected.activations
        assert found.steady_utilisation() == pytest.approx([expected.utilisation] * stages)


@pytest.mark.parametrize(
    ("name", "microbatches", "share"),
    [
        *[(name, *row) for name in ("gpipe", "1f1b") for row in ((4, 0.5714), (8, 0.7273))],
        *[(name, 4, 1.0) for name in ("pipedream", "pipemare", "pipemare_eager")],
    ],
)
def test_bubble(name: str, microbatches: int, share: float) -> None:
    """papers.md 5.6, item 9; with a flush a single mini-batch has the bubble of all of them."""
    schedule = schedules.make(name, 4, microbatches)
    assert costs(schedule).utilisation == pytest.approx(share, abs=1e-4)
    if share < 1:
        assert simulate(schedule, 1).utilisation() == pytest.approx([share] * 4, abs=1e-4)
    else:
        whole = [min(simulate(schedule, steps).utilisation()) for steps in (1, 10, 100)]
        assert whole == sorted(whole) and whole[-1] > 0.98


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "2bw", "pipedream", "pipemare"])
def test_versions_and_copies_of_weights(name: str) -> None:
    """papers.md 5.6, item 8."""
    schedule = schedules.make(name, 4, 3)
    copies = {"2bw": (2,) * 4, "pipedream": tuple(math.ceil(tau) + 1 for tau, _ in delays(schedule))}
    assert steady(schedule).weight_copies == copies.get(name, (1,) * 4)
    for timed in simulate(schedule, 6).stages:
        versions = {one.instruction: one.version for one in timed}
        for one, version in versions.items():
            if name == "2bw" and one.kind is not Kind.UPDATE:
                assert version == max(0, one.minibatch - 1)
            if name in ("pipedream", "pipemare") and one.kind is Kind.BACKWARD:
                forwards = versions[one._replace(kind=Kind.FORWARD)]
                assert version == (forwards if name == "pipedream" else one.minibatch)


def test_the_slowest_stage_sets_the_pace_and_updates_take_their_time() -> None:
    schedule = schedules.make("pipemare", 3, 4)
    shown = simulate(schedule, 40, forward_s=(1.0, 3.0, 2.0), backward_s=(2.0, 3.0, 1.0), update_s=0.0)
    assert shown.steady_utilisation() == pytest.approx([0.5, 1.0, 0.5], rel=0.02)
    # Updates take their time and too few steps and times are refused.
    shown = simulate(schedules.make("gpipe", 1, 2), 2, forward_s=1.0, backward_s=2.0, update_s=4.0)
    assert [(one.start_s, one.end_s) for one in shown.stages[0][:5]] == [(0, 1), (1, 2), (2, 4), (4, 6), (6, 10)]
    assert shown.end_s == 20
    assert shown.utilisation() == (1.0,)
    # Too few steps and times are refused.
    schedule = schedules.make("pipemare", 3, 1)
    with pytest.raises(ValueError, match=f"give {steady_steps(schedule)}"):
        simulate(schedule, steady_steps(schedule) - 1).steady_utilisation()
    with pytest.raises(ValueError, match="2 times for 3 stages"):
        simulate(schedule, 1, forward_s=(1.0, 2.0))


@pytest.mark.parametrize("stages", [2, 4])
def test_transfers_are_waited_for(stages: int) -> None:
    """The first stage has P micro-batches in flight, and each is sent 2 (P - 1) times."""
    found = simulate(schedules.make("pipemare", stages, 4), 30, transfer_s=0.5).steady_utilisation()
    assert found == pytest.approx([2 / (2 + 2 * 0.5 * (stages - 1) / stages)] * stages, rel=1e-3)


@pytest.mark.parametrize("stages", range(2, 7))
@pytest.mark.parametrize("transfer_s", [0.5, 1.5])
def test_eager_stages_hide_transfers_of_half_a_forward_and_a_backward_pass(stages: int, transfer_s: float) -> None:
    schedule = schedules.make("pipemare_eager", stages, 4)
    assert steady(schedule, backward_s=2.0, transfer_s=transfer_s).steady_utilisation() == pytest.approx([1.0] * stages)
    longer = steady(schedule, backward_s=2.0, transfer_s=transfer_s + 1.2)
    assert max(longer.steady_utilisation()) < 0.99


@pytest.mark.parametrize("microbatches", range(1, 10))
def test_2bw_has_bubbles_only_with_few_microbatches_and_never_more_than_gpipe(microbatches: int) -> None:
    for stages in range(2, 9):
        share = costs(schedules.make("2bw", stages, microbatches)).utilisation
        assert share == pytest.approx(1 / math.ceil(stages / (microbatches + 1)))
        assert (share == 1) == (microbatches >= stages - 1)
        assert share >= costs(schedules.make("gpipe", stages, microbatches)).utilisation
