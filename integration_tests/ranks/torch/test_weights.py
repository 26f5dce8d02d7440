"""Weighted means: ranks with unequally many samples are what one process with all of them is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.arming import ARMED, is_armed, meet, state
from integration_tests.support.merging import Messages, ask_for, repeat, step_until
from integration_tests.support.ranks import ranks
from integration_tests.support.torch_training import assert_replicas_equal, parameters
from integration_tests.support.weighing import LIMIT, assert_equal, batch, loss_of, net, rows, together, train_alone
from paceline.torch.optimizer import weighing

STEPS = 6
CASES: dict[str, dict[str, Any]] = {
    "sync": {"bucket_bytes": 0},
    "flat": {"bucket_bytes": 4096},
    "groups": {"groups": 2},
    "find_unused": {"find_unused_parameters": True},
    "auto": {"collective": "auto"},
    "pipelined": {"exchange": "pipelined", "bucket_bytes": 0},
    "pipelined_flat": {"exchange": "pipelined"},
    "split": {"exchange": "split"},
    "partial": {"bucket_bytes": 0},
    "partial_flat": {},
    "local": {"exchange": hvd.Local(sync_every=1)},
}
by_case = pytest.mark.parametrize("case", CASES)


def _optimizer(case: str, model: torch.nn.Module, size: int, **options: Any) -> Any:
    options = CASES[case] | options
    if case.startswith("partial"):
        options["exchange"] = hvd.Partial(quorum=size)
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options)


def _late(case: str) -> int:
    return int(case.startswith("pipelined"))


def _all(size: int, step: int) -> Any:
    return together([batch(rank, step) for rank in range(size)])


@by_case
@ranks(2, 3, more=(5,), hvd="paceline.torch")
def test_batches_of_unequal_size(rank: int, size: int, hvd: Any, case: str) -> None:
    """The loss of a rank without samples is NaN, and counts nothing."""
    model = net()
    optimizer = _optimizer(case, model, size)
    for step in range(STEPS):
        optimizer.zero_grad()
        optimizer.weight = torch.tensor(rows(rank, step))
        loss_of(model, batch(rank, step)).backward()
        optimizer.step()
        if case in ("sync", "flat", "groups", "auto"):
            assert optimizer.total_weight == pytest.approx(sum(rows(one, step) for one in range(size)), rel=1e-15)
    optimizer.drain()
    assert_equal(model, train_alone([_all(size, step) for step in range(STEPS)], _late(case)))
    assert_replicas_equal(model, "weights.end")


@by_case
@ranks(2, more=(4,), hvd="paceline.torch")
def test_masked_tokens_in_micro_batches(rank: int, size: int, hvd: Any, case: str) -> None:
    """Three micro-batches an update, each with the mean over its own tokens."""
    model = net()
    optimizer = _optimizer(case, model, size, backward_passes_per_step=3)
    expected = []
    for step in range(0, 3 * STEPS, 3):
        for micro in range(step, step + 3):
            with optimizer.weighted(rows(rank, micro)):
                loss_of(model, batch(rank, micro)).backward()
        optimizer.step()
        optimizer.zero_grad()
        expected.append(together([_all(size, micro) for micro in range(step, step + 3)]))
    assert optimizer.weight is None
    optimizer.drain()
    assert_equal(model, train_alone(expected, _late(case)))


@by_case
@ranks(2, 3, more=(5,), hvd="paceline.torch")
def test_unequally_many_batches(rank: int, size: int, hvd: Any, case: str) -> None:
    model = net()
    optimizer = _optimizer(case, model, size)
    counts = [[10, 7, 0, 3, 12][one % 5] for one in range(size)]
    calls = []
    for epoch in range(2):
        own = [batch(rank, 100 * epoch + number, 4 + number % 3) for number in range(counts[rank])]
        for one in hvd.uneven(own, optimizer, after_step=lambda: calls.append(1)):
            loss_of(model, one).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert optimizer.weight is None
    if case.startswith("partial"):  # which round a batch is in depends on who was through
        everyone = hvd.allgather(parameters(model).unsqueeze(0), name="weights.uneven")
        torch.testing.assert_close(everyone, everyone[:1].expand_as(everyone), rtol=0, atol=LIMIT)
        return
    assert_equal(model, _uneven_alone(size, counts, _late(case)))
    assert len(calls) == 2 * (max(counts) - counts[rank]) + 2 * (_late(case) or 0) * (counts[rank] < max(counts) or 1)


def _uneven_alone(size: int, counts: list[int], late: int) -> torch.nn.Module:
    epochs = [
        [
            together([batch(one, 100 * epoch + n, 4 + n % 3) for one in range(size) if n < counts[one]])
            for n in range(max(counts))
        ]
        for epoch in range(2)
    ]
    if not late:
        return train_alone([one for epoch in epochs for one in epoch])
    model = train_alone(epochs[0], late)
    return train_alone(epochs[1], late, begin=model)


@ranks(2, hvd="paceline.torch")
def test_a_loop_that_gives_weights_itself(rank: int, size: int, hvd: Any) -> None:
    model = net()
    optimizer = _optimizer("sync", model, size)
    counts = [3, 5]
    for number in range(counts[rank]):
        one = batch(rank, number, 4 + number % 3)
        optimizer.weight = hvd.samples_of({"inputs": [one[0]], "targets": one[1]})
        loss_of(model, one).backward()
        optimizer.step()
        optimizer.zero_grad()
    hvd.finish_uneven(optimizer)
    alone = [together([batch(one, n, 4 + n % 3) for one in range(size) if n < counts[one]]) for n in range(5)]
    assert_equal(model, train_alone(alone))
    with pytest.raises(hvd.UsageError, match="no tensor with samples"):
        hvd.samples_of("text")
    with pytest.raises(hvd.UsageError, match="that is not wrapped"):
        hvd.finish_uneven(optimizer.held)


@ranks(2, 3, hvd="paceline.torch")
def test_join(rank: int, size: int, hvd: Any) -> None:
    """A rank that has joined has the weight 0 without further ado."""
    model = net()
    optimizer = _optimizer("sync", model, size)
    for step in range(STEPS - 2 * (rank == 0)):
        optimizer.zero_grad()
        optimizer.weight = 4 + rank
        loss_of(model, batch(rank, step, 4 + rank)).backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    alone = [
        together([batch(one, step, 4 + one) for one in range(size) if one or step < STEPS - 2]) for step in range(STEPS)
    ]
    assert_equal(model, train_alone(alone))


def _ten_armed_steps(rank: int, size: int, hvd: Any, weighted: bool) -> dict[str, int]:
    """Return messages, tensors and bytes of ten armed steps in a row."""
    model, done = net(), 0
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(f"ten.{weighted}"), bucket_bytes=0
    )
    sent: dict[str, int] = {}

    def step_of(_: int) -> None:
        nonlocal done
        optimizer.zero_grad()
        if weighted:
            optimizer.weight = rows(rank, done)
        loss_of(model, batch(rank, done, None if weighted else 8)).backward()
        optimizer.step()
        done += 1

    def ten_steps(_: int) -> None:
        record, armed = Messages(), state().steps
        for _ in range(10):
            step_of(0)
        meet()
        sent["armed"], sent["bytes"] = state().steps - armed, record.size_bytes()
        messages = [message for step in record.stop() for message in step]
        sent["messages"], sent["tensors"] = len(messages), sum(map(len, messages))

    ask_for("torch", "none")
    step_until("torch", step_of)
    repeat("torch", step_of, is_armed)
    repeat("torch", ten_steps, lambda: sent["armed"] == 10, about=state)
    if weighted:
        assert_equal(model, train_alone([_all(size, step) for step in range(done)]))
    ask_for("torch", "threshold")
    return sent


@ranks(2, env=ARMED, hvd="paceline.torch")
def test_armed_steps_and_what_a_weight_costs(rank: int, size: int, hvd: Any) -> None:
    """The number of messages is the same, with one element more for each gradient."""
    without, with_weights = (_ten_armed_steps(rank, size, hvd, weighted) for weighted in (False, True))
    gradients = 4
    assert with_weights["messages"] == without["messages"]
    assert with_weights["tensors"] == without["tensors"] == 10 * gradients
    assert with_weights["bytes"] - without["bytes"] == 10 * gradients * 8


@ranks(2, 3, hvd="paceline.torch")
def test_late_gradients_keep_their_weight(rank: int, size: int, hvd: Any) -> None:
    """The last rank is late to the first round: its gradient is in the second, which divides by all contributions."""
    parameter = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=1.0), [("late", parameter)], exchange=hvd.Partial(quorum=size - 1 or 1)
    )
    late = rank == size - 1

    def contribute(step: int) -> None:
        optimizer.zero_grad()
        optimizer.weight = rank + 2
        (parameter * float(10 * step + rank)).sum().backward()
        optimizer.step()

    contribute(0)  # the first round of a name waits for all ranks
    for step in (1, 2):
        if late and step == 1:
            hvd.barrier()
        if not late:
            contribute(step)
            if step == 1:
                hvd.barrier()
        elif step == 1:
            contribute(step)
        hvd.barrier()

    def mean(*came: tuple[int, int]) -> float:
        return sum((one + 2) * (10 * step + one) for one, step in came) / sum(one + 2 for one, _ in came)

    everyone, in_time = list(range(size)), list(range(size - 1))
    first = mean(*((one, 0) for one in everyone))
    second = mean(*((one, 1) for one in in_time))
    third = mean(*((one, 2) for one in in_time), (size - 1, 1))
    optimizer.drain()
    assert parameter.tolist() == pytest.approx([-(first + second + third)] * 3, abs=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@ranks(2, hvd="paceline.torch")
def test_contributed_divides_by_those_who_came(rank: int, size: int, hvd: Any, weighted: bool) -> None:
    """Without weights each contribution counts 1."""
    parameter = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    partial = hvd.Partial(quorum=1, mean="contributed")
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("came", parameter)], exchange=partial)
    for step in range(2):
        if step == 0 or rank == 0:
            optimizer.zero_grad()
            if weighted:
                optimizer.weight = rank + 1
            (parameter * (8.0 * step + 3 * rank)).sum().backward()
            optimizer.step()
        hvd.barrier()
    optimizer.drain()
    first = 3 * 2 / 3 if weighted else 1.5
    assert parameter.tolist() == pytest.approx([-(first + 8.0)] * 2, abs=1e-12)


@pytest.mark.parametrize("case", ["pipelined", "pipelined_flat", "partial", "partial_flat", "local"])
@ranks(2, hvd="paceline.torch")
def test_saved_in_flight(rank: int, size: int, hvd: Any, case: str) -> None:
    def run(model: Any, optimizer: Any, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            optimizer.weight = rows(rank, step)
            loss_of(model, batch(rank, step)).backward()
            optimizer.step()

    model = net()
    optimizer = _optimizer(case, model, size)
    run(model, optimizer, range(3))
    hvd.barrier()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    hvd.barrier()
    again = net(seed=1)
    again.load_state_dict(saved["model"])
    resumed = hvd.DistributedOptimizer(
        torch.optim.SGD(again.parameters(), lr=0.1),
        again.named_parameters("again"),
        **{**CASES[case], **({"exchange": hvd.Partial(quorum=size)} if case.startswith("partial") else {})},
    )
    state = saved["optimizer"]
    if "paceline_in_flight" in state:
        found = state["paceline_in_flight"]
        renamed = [({f"again.{key}": one for key, one in many.items()}, scale) for many, scale in found["in_flight"]]
        state = {**state, "paceline_in_flight": {**found, "in_flight": renamed}}
    resumed.load_state_dict(state)
    for one, its in ((model, optimizer), (again, resumed)):
        run(one, its, range(3, STEPS))
        its.drain()
    assert torch.equal(parameters(model), parameters(again))
    assert_equal(again, train_alone([_all(size, step) for step in range(STEPS)], _late(case)))


@ranks(2, hvd="paceline.torch")
def test_discarded(rank: int, size: int, hvd: Any) -> None:
    """A dropped batch does not change gradients in flight."""
    model = net()
    optimizer = _optimizer("pipelined_flat", model, size)
    for step in range(STEPS):
        optimizer.weight = rows(rank, step)
        loss_of(model, batch(rank, step)).backward()
        if step == 3:
            optimizer.discard()
        else:
            optimizer.step()
            optimizer.zero_grad()
    optimizer.drain()
    assert_equal(model, train_alone([_all(size, step) for step in range(STEPS) if step != 3], 1))


@ranks(2, hvd="paceline.torch")
def test_nothing_on_all_ranks(rank: int, size: int, hvd: Any) -> None:
    """Gradients are zeros, and one rank reports it, once."""
    said: list[str] = []
    vars(weighing)["log"] = said.append
    model = net()
    optimizer = _optimizer("sync", model, size)
    before = parameters(model).clone()
    optimizer.weight = 0
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch(rank, step, 0)).backward()
        optimizer.step()
    assert torch.equal(parameters(model), before)
    assert optimizer.total_weight == 0
    assert len(said) == (rank == 0)


@ranks(2, hvd="paceline.torch")
def test_refused(rank: int, size: int, hvd: Any) -> None:
    model = net()
    optimizer = _optimizer("sync", model, size)
    for value in (-1, math.nan, math.inf, "three", torch.ones(2)):
        with pytest.raises(hvd.UsageError, match=r"cannot be used(.|\n)*finite number >= 0"):
            optimizer.weight = value
    optimizer.weight = 2
    loss_of(model, batch(rank, 0, 2)).backward()
    with pytest.raises(hvd.UsageError, match=r"after the backward pass began(.|\n)*before backward"):
        optimizer.weight = 3
    optimizer.step()
    optimizer.weight = 3  # and now it may
    optimizer.weight = None
    for number, (options, words) in enumerate(
        [
            ({"op": hvd.Sum}, "op=hvd.Sum"),
            ({"compression": hvd.Compression.fp16}, "compression="),
            ({"codec": "q8", "exchange": "pipelined"}, "a codec rounds"),
        ]
    ):
        other = net()
        refusing = hvd.DistributedOptimizer(
            torch.optim.SGD(other.parameters(), lr=0.1), other.named_parameters(f"refused.{number}"), **options
        )
        with pytest.raises(hvd.UsageError, match=words):
            refusing.weight = 1
    half = torch.nn.Linear(3, 2).half()
    refusing = hvd.DistributedOptimizer(
        torch.optim.SGD(half.parameters(), lr=0.1), half.named_parameters("half"), bucket_bytes=0
    )
    refusing.weight = 1
    with pytest.raises(hvd.UsageError, match=r"float16(.|\n)*bfloat16"):
        half(torch.ones(1, 3).half()).sum().backward()
        refusing.step()


@pytest.mark.parametrize("case", ["sync", "pipelined", "partial"])
@ranks(2, hvd="paceline.torch")
def test_weights_on_some_ranks_only(rank: int, size: int, hvd: Any, case: str) -> None:
    model = net()
    optimizer = _optimizer(case, model, size)
    if rank == 0:
        optimizer.weight = 1
    with pytest.raises(hvd.HorovodInternalError, match=r"on all ranks in the same updates|shut down"):
        for step in range(3):  # a rank learns it when it waits for a result
            loss_of(model, batch(rank, step, 2)).backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("bucket_bytes", [0, 4096])
@pytest.mark.parametrize("codec", ["bf16", "q8"])
@ranks(2, 3, hvd="paceline.torch")
def test_codecs(rank: int, size: int, hvd: Any, codec: str, bucket_bytes: int) -> None:
    """Gradients are rounded, weights are not: gradients that a codec encodes exactly have exact means."""
    parameters = [torch.nn.Parameter(torch.zeros(1024)), torch.nn.Parameter(torch.zeros(3))]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=1.0), [(f"{codec}{bucket_bytes}.{n}", one) for n, one in enumerate(parameters)],
        codec=codec, bucket_bytes=bucket_bytes,
    )  # fmt: skip
    weights = [2000 * one + 1 for one in range(size)]
    for _ in range(3):
        optimizer.zero_grad()
        optimizer.weight = weights[rank]
        sum(one.sum() * (rank + 1) for one in parameters).backward()
        optimizer.step()
        assert optimizer.total_weight == pytest.approx(sum(weights), rel=1e-12)
    expected = -3 * sum(w * (one + 1) for one, w in enumerate(weights)) / sum(weights)
    for one in parameters:
        torch.testing.assert_close(one.detach(), torch.full_like(one, expected), rtol=1e-2, atol=0)
    assert_replicas_equal(torch.nn.ParameterList(parameters), f"weights.{codec}{bucket_bytes}")


@ranks(2, hvd="paceline.torch")
def test_bfloat16(rank: int, size: int, hvd: Any) -> None:
    """It is sent as float32, followed by the weight as float32."""
    parameter = torch.nn.Parameter(torch.zeros(5, dtype=torch.bfloat16))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("narrow", parameter)])
    optimizer.weight = 3000 + rank
    (parameter * (1.0 + rank)).sum().backward()
    optimizer.step()
    assert optimizer.total_weight == 6001
    expected = torch.tensor(-(3000 + 3001 * 2) / 6001).bfloat16()
    assert torch.equal(parameter.detach(), expected.expand(5))


@ranks(1, hvd="paceline.torch")
def test_alone(rank: int, size: int, hvd: Any) -> None:
    model = net()
    optimizer = _optimizer("sync", model, size, backward_passes_per_step=2)
    for step in range(0, 6, 2):
        for micro in (step, step + 1):
            optimizer.weight = rows(0, micro)
            loss_of(model, batch(0, micro)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_equal(model, train_alone([together([batch(0, step), batch(0, step + 1)]) for step in range(0, 6, 2)]))


@ranks(2, 3, hvd="paceline.torch")
def test_means_of_metrics(rank: int, size: int, hvd: Any) -> None:
    weights = [rows(one, 0) for one in range(size)]
    expected = sum(one * w for one, w in enumerate(weights)) / sum(weights)
    assert hvd.mean(rank if weights[rank] else math.nan, weights[rank]) == pytest.approx(expected, abs=1e-15)
    found = hvd.mean(torch.tensor([[rank, 2.0 * rank]]), weights[rank])
    torch.testing.assert_close(found, torch.tensor([[expected, 2 * expected]]))
    assert math.isnan(hvd.mean(1.0, 0))
    with pytest.raises(hvd.UsageError, match="finite number >= 0"):
        hvd.mean(1.0, -1)
