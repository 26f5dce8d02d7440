"""From a trace to readiness, costs and coordination: traces made from known values must give these back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from paceline.errors import UserError
from paceline.fusion import costs, from_trace
from paceline.record import trace
from paceline.record.trace import Arrival, Collective, RankTrace, Step, Tensor, Totals, Trace

A_S, B_S = 2e-3, 1e-8
COORDINATION_S = 4e-4
NAMES = ("fc.weight", "fc.bias", "conv2.weight", "conv1.weight", "conv0.weight", "bn.weight", "bn.bias")
SIZES = (40_000, 400, 360_000, 90_000, 4_000, 256, 257)
READY_S = (0.0, 5e-5, 3e-3, 9e-3, 0.0101, 0.0102, 0.025)
LATE_S = 7e-4  # how much later the last rank has conv1.weight
STEP_S = 0.1


def clock_s(rank: int) -> float:
    return 1000.0 * rank + 0.125


def order(rank: int) -> list[int]:
    """Each rank lists the tensors in another order."""
    return [(place + rank) % len(NAMES) for place in range(len(NAMES))]


def recorded_rank(
    rank: int, size: int, steps: int, ready_s: Sequence[float] = READY_S, at_once: Sequence[str] = ()
) -> RankTrace:
    """A trace with every tensor alone, in one round of coordination per message.

    Messages in `at_once` have no round: they follow the message before them. The first three steps are ten times
    slower.
    """
    number = {tensor: place for place, tensor in enumerate(order(rank))}
    made = []
    for index in range(steps):
        slow = 10 if index < from_trace.WARM_UP_STEPS else 1
        start_s = clock_s(rank) + index * STEP_S * 10
        everywhere_s = [at * slow + (LATE_S if NAMES[n] == "conv1.weight" else 0) for n, at in enumerate(ready_s)]
        own_s = everywhere_s if rank == size - 1 else [at * slow for at in ready_s]
        end_s, collectives = 0.0, []
        for tensor, ready in enumerate(everywhere_s):
            begin_s = end_s if NAMES[tensor] in at_once else max(end_s, ready) + COORDINATION_S
            end_s = begin_s + slow * (A_S + B_S * SIZES[tensor])
            own = (number[tensor],)
            collectives.append(Collective("allreduce", own, SIZES[tensor], start_s + begin_s, start_s + end_s))
        arrivals = tuple(Arrival(number[tensor], start_s + at) for tensor, at in enumerate(own_s))
        made.append(Step(index, start_s, arrivals, tuple(collectives), 20))
    tensors = tuple(Tensor(NAMES[n], SIZES[n], "float16" if "bn" in NAMES[n] else "float32", 0) for n in order(rank))
    totals = Totals(steps, 20 * steps, len(NAMES) * steps, sum(SIZES) * steps)
    return RankTrace(rank, size, f"host{rank}", "torch", "0.28.1", "0.1.0", tensors, tuple(made), totals)


def recorded(size: int = 3, steps: int = 12) -> Trace:
    return Trace(size, tuple(recorded_rank(rank, size, steps) for rank in range(size)))


def with_steps(one: RankTrace, steps: Sequence[Step]) -> RankTrace:
    return replace(one, steps=tuple(steps))


def adding(one: RankTrace, tensor: Tensor, at_s: float, in_steps: range, lasts_s: float = 1e-3) -> RankTrace:
    """The trace with one more tensor, alone in a message that begins as it arrives."""
    number = len(one.tensors)
    steps = []
    for step in one.steps:
        if step.index in in_steps:
            begin_s = step.start_s + at_s
            message = Collective("allreduce", (number,), tensor.size_bytes, begin_s, begin_s + lasts_s)
            step = replace(
                step,
                arrivals=(*step.arrivals, Arrival(number, begin_s)),
                collectives=tuple(sorted((*step.collectives, message), key=lambda each: each.start_s)),
            )
        steps.append(step)
    return replace(one, tensors=(*one.tensors, tensor), steps=tuple(steps))


def adding_everywhere(merged: Trace, tensor: Tensor, at_s: float, in_steps: range = range(99)) -> Trace:
    return Trace(merged.size, tuple(adding(one, tensor, at_s, in_steps) for one in merged.ranks))


def test_known_values_come_back(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace.write(recorded(), path)
    found = from_trace.measure(from_trace.load(path), 1e-3)
    assert [gradient.name for gradient in found.gradients] == list(NAMES)
    assert [gradient.bytes for gradient in found.gradients] == list(SIZES)
    expected = [at + (LATE_S if name == "conv1.weight" else 0) for name, at in zip(NAMES, READY_S, strict=True)]
    assert [gradient.ready_s for gradient in found.gradients] == pytest.approx(expected, abs=1e-9)
    assert [gradient.dtype for gradient in found.gradients] == ["float32"] * 5 + ["float16"] * 2
    assert [gradient.type for gradient in found.gradients] == [0] * 5 + [1] * 2
    assert found.coordination_s == pytest.approx(COORDINATION_S, abs=1e-9)
    assert (found.steps, found.ranks, found.messages) == (9, 3, len(NAMES))
    assert found.left_out == {}
    model = costs.fit(found.samples)
    assert [model.a_s, model.b_s_per_byte] == pytest.approx([A_S, B_S], rel=1e-6)
    last_s = recorded().ranks[0].steps[5].collectives[-1].end_s - recorded().ranks[0].steps[5].start_s
    assert found.finish_s == pytest.approx(last_s)


def test_parts_that_a_run_left_are_read_in_place_of_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for one in recorded().ranks:
        trace.write(one, trace.part_path(path, one.rank))
    assert from_trace.load(path) == recorded()
    other = recorded_rank(1, 5, 3)
    trace.write(other, trace.part_path(path, 1))
    with pytest.raises(UserError, match="different runs"):
        from_trace.load(path)


@pytest.mark.parametrize("steps", [2, 3, 4, 5])
def test_few_steps_are_enough(steps: int) -> None:
    found = from_trace.measure(recorded(2, steps), 0.0)
    assert found.steps == max(1, steps - from_trace.WARM_UP_STEPS)
    assert [gradient.name for gradient in found.gradients] == list(NAMES)


def test_one_disturbed_step_changes_nothing() -> None:
    merged = recorded()
    one = merged.ranks[1]
    steps = list(one.steps)
    hit = steps[7]
    late = [replace(each, time_s=each.time_s + 0.2 * (each.time_s > hit.start_s)) for each in hit.arrivals]
    slow = [replace(each, end_s=each.end_s + 0.0003) for each in hit.collectives]
    steps[7] = replace(hit, arrivals=tuple(late), collectives=tuple(slow))
    disturbed = Trace(3, (merged.ranks[0], with_steps(one, steps), merged.ranks[2]))
    expected, found = from_trace.measure(merged, 1e-3), from_trace.measure(disturbed, 1e-3)
    assert found.gradients == expected.gradients
    seconds = [[taken for _, taken in sorted(each.samples)] for each in (found, expected)]
    assert seconds[0] == pytest.approx(seconds[1]), "the other ranks saw when the messages ended"
    assert found.coordination_s == pytest.approx(COORDINATION_S, abs=1e-9)


def test_costs_are_of_ranks_that_waited_least_and_rounds_of_messages_agreed_on_alone() -> None:
    """Rank 0 enters early and waits within the message; if no other rank saw it, rank 0's time counts."""
    merged = recorded(2, 6)
    early = [
        replace(step, collectives=tuple(replace(one, start_s=one.start_s - 1e-4) for one in step.collectives))
        for step in merged.ranks[0].steps
    ]
    both = Trace(2, (with_steps(merged.ranks[0], early), merged.ranks[1]))
    fitted = costs.fit(from_trace.measure(both, 0.0).samples)
    assert fitted.a_s == pytest.approx(A_S, rel=1e-6)
    alone = Trace(2, (with_steps(merged.ranks[0], early),))
    assert costs.fit(from_trace.measure(alone, 0.0).samples).a_s == pytest.approx(A_S + 1e-4, rel=1e-6)
    # Coordination is that of messages that were not agreed on together.
    one = recorded_rank(0, 1, 8, at_once=("fc.bias", "conv0.weight", "bn.weight"))
    assert from_trace.measure(Trace(1, (one,)), 0.0).coordination_s == pytest.approx(COORDINATION_S, abs=1e-9)
    # Messages that find none in flight take half a cycle less.
    one = recorded_rank(0, 1, 5, ready_s=[0.01 * place for place in range(len(NAMES))])
    found = from_trace.measure(Trace(1, (one,)), 2e-4)
    assert found.coordination_s == pytest.approx(COORDINATION_S - 1e-4, abs=1e-9)
    assert found.coordination_known
    clamped = from_trace.measure(Trace(1, (one,)), 1.0)
    assert (clamped.coordination_s, clamped.coordination_known) == (0.0, False)


def test_metrics_tensors_of_some_steps_and_of_smaller_process_sets_are_left_out() -> None:
    merged = adding_everywhere(recorded(), Tensor("loss", 4, "float32", 0), 0.09)
    merged = adding_everywhere(merged, Tensor("accuracy", 8, "float64", 0), 0.095)
    found = from_trace.measure(merged, 1e-3)
    assert [gradient.name for gradient in found.gradients] == list(NAMES)
    assert set(found.left_out) == {"loss", "accuracy"}
    assert "metric" in found.left_out["loss"]
    assert found.finish_s == pytest.approx(from_trace.measure(recorded(), 1e-3).finish_s)
    # Tensor of some steps only is left out.
    merged = recorded()
    for name, in_steps in {"weekly": range(4, 12, 2), "nearly": range(3, 11)}.items():
        merged = adding_everywhere(merged, Tensor(name, 1000, "float32", 0), 0.02, in_steps)
    found = from_trace.measure(merged, 1e-3)
    assert found.left_out == {"weekly": "in 44% of the steps only", "nearly": "in 89% of the steps only"}
    # Smaller process set is left out.
    merged = recorded()
    tensor = Tensor("expert", 100_000, "float32", 4)
    ranks = (merged.ranks[0], *(adding(one, tensor, 0.02, range(99), 0.07) for one in merged.ranks[1:]))
    found = from_trace.measure(Trace(3, ranks), 1e-3)
    assert "process set 4" in found.left_out["expert"]
    assert [gradient.name for gradient in found.gradients] == list(NAMES)
    assert max(seconds for _, seconds in found.samples) < 0.01, "its messages say nothing about the others"


@pytest.mark.parametrize(("size_bytes", "at_s"), [(4000, 0.09), (4, 0.0255)], ids=["large", "does not wait"])
def test_last_gradient_is_no_metric(size_bytes: int, at_s: float) -> None:
    found = from_trace.measure(adding_everywhere(recorded(), Tensor("embed", size_bytes, "float32", 0), at_s), 1e-3)
    assert found.gradients[-1].name == "embed"
    assert found.gradients[-1].ready_s == pytest.approx(at_s)


def test_traces_that_cannot_be_used() -> None:
    one = recorded_rank(0, 1, 6)
    steps = [
        replace(step, collectives=tuple(replace(c, kind="adasum") for c in step.collectives)) for step in one.steps
    ]
    for merged, said in (
        (recorded(2, 1), r"one step only(.|\n)*paceline record"),
        (recorded(2, 0), r"no step: nothing was all-reduced(.|\n)*paceline record"),
        (Trace(2, ()), r"no step: nothing was all-reduced(.|\n)*paceline record"),
        (
            Trace(1, (with_steps(one, steps),)),
            r"no tensor that is all-reduced in every step(.|\n)*DistributedOptimizer",
        ),
    ):
        with pytest.raises(UserError, match=said):
            from_trace.measure(merged, 1e-3)
