"""PACELINE_REPRODUCIBLE: every run gives the bits of one process that adds up in the order of ranks."""

from __future__ import annotations

import functools
import hashlib
import random
import time
from typing import Any

import pytest
import torch

from integration_tests.support.arming import ARMED, step_armed
from integration_tests.support.merging import ask_for, step_until
from integration_tests.support.ranks import ranks
from paceline.errors import UserError

REPRODUCIBLE = {"PACELINE_REPRODUCIBLE": "yes"}
# No whole numbers of shards, of blocks or of a codec's slices; and some that share a message.
SIZES = (7, 1000, 65_537, 3, 2500, 130)
STEPS = 14
RUNS = 3
RATE = 0.1


@functools.cache
def gradient(rank: int, step: int, number: int) -> Any:
    """Numbers of very different sizes: their sum depends on the order."""
    dice = torch.Generator().manual_seed(10_000 * rank + 100 * step + number)
    numbers = torch.randn(SIZES[number], generator=dice)
    return numbers * torch.exp2(torch.randint(-12, 12, (SIZES[number],), generator=dice).float())


@functools.cache
def mean(size: int, step: int, number: int) -> Any:
    """The mean of all ranks, added up in their order by one process."""
    total = gradient(0, step, number).clone()
    for rank in range(1, size):
        total += gradient(rank, step, number)
    return total * torch.tensor(1 / size)


@functools.cache
def alone(size: int, steps: int) -> str:
    """The hash of what one process makes of all gradients."""
    weights = [torch.zeros(elements) for elements in SIZES]
    for step in range(steps):
        for number, one in enumerate(weights):
            one.sub_(mean(size, step % STEPS, number), alpha=RATE)
    return hashed(weights)


def hashed(weights: list[Any]) -> str:
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in weights)).hexdigest()


class Training:
    """Gradients become ready at random times, in a different order in every run."""

    def __init__(self, rank: int, size: int, hvd: Any, label: str, **options: Any) -> None:
        self.rank, self.size = rank, size
        dice = random.Random(f"{rank}, {label}")
        self.weights = [torch.nn.Parameter(torch.zeros(elements)) for elements in SIZES]
        for one in self.weights:
            one.register_hook(lambda _: time.sleep(0.003 * dice.random()))
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(self.weights, lr=RATE),
            named_parameters=[(f"{label}.{number}", one) for number, one in enumerate(self.weights)],
            **options,
        )
        self.steps = 0

    def step(self, _: int = 0) -> None:
        self.optimizer.zero_grad()
        own = [gradient(self.rank, self.steps % STEPS, number) for number in range(len(SIZES))]
        torch.stack([(one * its).sum() for one, its in zip(self.weights, own, strict=True)]).sum().backward()
        self.optimizer.step()
        self.steps += 1

    def result(self) -> str:
        self.optimizer.drain()
        return hashed(self.weights)


def runs(rank: int, size: int, hvd: Any, label: str, **options: Any) -> set[str]:
    """The different results of all runs, of all ranks."""
    results = []
    for run in range(RUNS):
        training = Training(rank, size, hvd, f"{label}.{run}", **options)
        for _ in range(STEPS):
            training.step()
        results.append(training.result())
    return {one for of_rank in hvd.allgather_object(results, name=f"{label}.results") for one in of_rank}


@pytest.mark.parametrize("exchange", ["sync", "pipelined", "local"])
@ranks(3, more=(2, 4, 5), env=REPRODUCIBLE, hvd="paceline.torch")
def test_one_process_in_the_order_of_ranks(rank: int, size: int, hvd: Any, exchange: str) -> None:
    found = runs(rank, size, hvd, f"ordered.{exchange}", exchange=exchange)
    if exchange == "local":  # averages weights without knowing their gradients
        assert len(found) == 1
    else:
        assert found == {alone(size, STEPS)}


@pytest.mark.parametrize("collective", ["linear", "direct"])
@ranks(3, more=(4, 5), env=REPRODUCIBLE, hvd="paceline.torch")
def test_a_collective_that_is_named(rank: int, size: int, hvd: Any, collective: str) -> None:
    assert runs(rank, size, hvd, f"ordered.{collective}", collective=collective) == {alone(size, STEPS)}


@pytest.mark.parametrize("codec", ["q8", "bf16"])
@ranks(3, more=(4, 5), worlds=[REPRODUCIBLE, {**REPRODUCIBLE, "PACELINE_COLLECTIVE": "auto"}], hvd="paceline.torch")
def test_what_codecs_lose_is_the_same(rank: int, size: int, hvd: Any, codec: str) -> None:
    assert len(runs(rank, size, hvd, f"ordered.{codec}", codec=codec)) == 1


@ranks(3, more=(4, 5), env=REPRODUCIBLE, hvd="paceline.torch")
def test_owners_add_up_in_an_order_of_their_own(rank: int, size: int, hvd: Any) -> None:
    assert len(runs(rank, size, hvd, "ordered.split", exchange="split")) == 1


@ranks(3, more=(2, 4, 5), env={**REPRODUCIBLE, **ARMED}, hvd="paceline.torch")
def test_armed_steps(rank: int, size: int, hvd: Any) -> None:
    training = Training(rank, size, hvd, "ordered.armed", bucket_bytes=80)
    ask_for("torch", "none")
    step_until("torch", training.step)
    step_armed(training.step, STEPS)
    assert training.result() == alone(size, training.steps)
    ask_for("torch", "threshold")


@ranks(3, more=(4, 5), env=REPRODUCIBLE, hvd="paceline.tensorflow")
def test_a_function_of_tensorflow(rank: int, size: int, hvd: Any) -> None:
    import tensorflow as tf

    variables = [tf.Variable(tf.zeros(elements)) for elements in SIZES]

    @tf.function(autograph=False)
    def gradients(own: list[Any]) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one * its) for one, its in zip(variables, own, strict=True)])
        found: list[Any] = hvd.DistributedGradientTape(tape).gradient(loss, variables)
        return found

    for step in range(STEPS):
        time.sleep(0.003 * random.random())
        found = gradients([tf.constant(gradient(rank, step, number).numpy()) for number in range(len(SIZES))])
        for number, one in enumerate(found):
            assert torch.equal(torch.from_numpy(one.numpy()), mean(size, step, number)), (step, number)


@ranks(3, env={"PACELINE_COLLECTIVE": "ring"}, hvd="paceline.torch")
def test_a_ring_adds_up_in_other_orders(rank: int, size: int, hvd: Any) -> None:
    """The numbers are such that the order is seen."""
    assert alone(size, STEPS) not in runs(rank, size, hvd, "ring")


@ranks(2, env=REPRODUCIBLE, hvd="paceline.torch")
def test_what_depends_on_time_is_refused(rank: int, size: int, hvd: Any) -> None:
    for options, said in (
        ({"exchange": "majority"}, "exclude each other"),
        ({"collective": "ring"}, "collective=ring was given together with PACELINE_REPRODUCIBLE=yes"),
        ({"collective": "horovod"}, "Leave collective=horovod out, or use one of linear, direct, auto"),
    ):
        with pytest.raises(UserError, match=said):
            Training(rank, size, hvd, "refused", **options)
    with pytest.raises(UserError, match="sync, pipelined, local, split give the same bits"):
        hvd.partial_allreduce(torch.ones(3), name="refused")
