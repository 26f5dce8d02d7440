"""Parts of models that are averaged in turn, averages of moments, codecs, and sites; against one process."""

from __future__ import annotations

import copy
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from integration_tests.support.keras_worlds import compiled_or_not, keras_ranks, numpy, same_everywhere
from integration_tests.support.ranks import ranks
from paceline.local.turns import Turn, parted, turns

# Delay, mixing, and two weights before each step: torchft's regression fixtures of its DiLoCo with two fragments
# (meta-pytorch/torchft, DiLoCoMockedUpdateTest). Gradients are 2, the rate is 1, the outer rate 2; a fragment every 3
# of 6 steps.
TRACES: list[tuple[int, float, list[float], list[float]]] = [
    (0, 0, [1, -1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59],
     [1, -1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47, -49, -51, -53]),
    (0, 0.5, [1, -1, -3, -8, -10, -12, -14, -16, -18, -24.5, -26.5, -28.5, -30.5, -32.5, -34.5, -40.25],
     [1, -1, -3, -5, -7, -9, -17, -19, -21, -23, -25, -27, -32, -34, -36, -38]),
    (0, 1, [1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29],
     [1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29]),
    (1, 0, [1, -1, -3, -7, -9, -11, -13, -15, -17, -27, -29, -31, -33, -35, -37, -47],
     [1, -1, -3, -5, -7, -9, -19, -21, -23, -25, -27, -29, -39, -41, -43, -45]),
    (1, 0.5, [1, -1, -3, -6, -8, -10, -12, -14, -16, -21.5, -23.5, -25.5, -27.5, -29.5, -31.5, -35.75],
     [1, -1, -3, -5, -7, -9, -15, -17, -19, -21, -23, -25, -29, -31, -33, -35]),
    (1, 1, [1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29],
     [1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29]),]  # fmt: skip


@pytest.mark.parametrize(("delay", "mixing", "first", "second"), TRACES)
@ranks(2, hvd="paceline.torch")
def test_traces_of_torchft(
    rank: int, size: int, hvd: Any, delay: int, mixing: float, first: list[float], second: list[float]
) -> None:
    weights = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    exchange = hvd.Local(sync_every=6, fragments=2, delay=delay, mixing=mixing, outer_lr=2.0)
    named = [(f"trace{delay}{mixing}.{number}", one) for number, one in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), named, exchange=exchange)
    for found in zip(first, second, strict=True):
        assert tuple(one.item() for one in weights) == found
        optimizer.zero_grad()
        (2 * sum(weights)).backward()
        optimizer.step()


def test_turns() -> None:
    assert turns(8, 1, 0) == [Turn(0, 8, 8)]
    assert turns(7, 3, 1) == [Turn(0, 1, 2), Turn(1, 3, 4), Turn(2, 6, 7)]
    assert parted({4: 100, 5: 1, 7: 1, 8: 98}, 2) == [[4], [5, 7, 8]]
    assert parted({0: 1000, 1: 1}, 3) == [[], [0], [1]]
    assert parted({}, 2) == [[], []]


def _adam(label: str, exchange: Any, weights: list[Any], rate: float = 0.125, **options: Any) -> Any:
    import paceline.torch as hvd

    named = [(f"{label}.{number}", one) for number, one in enumerate(weights)]
    return hvd.DistributedOptimizer(torch.optim.Adam(weights, lr=rate), named, exchange=exchange, **options)


def _pull(weights: list[Any], towards: float) -> None:
    for number, weight in enumerate(weights):
        target = torch.arange(weight.numel(), dtype=weight.dtype).view(weight.shape) + number + towards
        weight.grad = weight.detach() - target


@ranks(3, more=(2,), hvd="paceline.torch")
def test_moments_become_means(rank: int, size: int, hvd: Any) -> None:
    """Weights are averaged every 2 updates, moments every 3; equal to one process that plays all ranks."""
    shapes = [(3, 5), (4,)]
    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes]
    optimizer = _adam("moments", hvd.Local(sync_every=2, moments_every=3), weights)
    played = [[torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in shapes] for _ in range(size)]
    held = [torch.optim.Adam(one, lr=0.125) for one in played]
    for step in range(1, 8):
        optimizer.zero_grad()
        _pull(weights, 10.0 * rank)
        optimizer.step()
        for number, (one, adam) in enumerate(zip(played, held, strict=True)):
            _pull(one, 10.0 * number)
            adam.step()
        for index in range(len(shapes)):
            lists = [[adam.state[one[index]][kind] for one, adam in zip(played, held, strict=True)]
                     for kind in ("exp_avg", "exp_avg_sq")] if step % 3 == 0 else []  # fmt: skip
            for many in [*lists, *([[one[index].data for one in played]] if step % 2 == 0 else [])]:
                mean = sum(many) / size
                for one in many:
                    one.copy_(mean)
    for index, weight in enumerate(weights):
        torch.testing.assert_close(weight.data, played[rank][index].data, rtol=1e-12, atol=1e-12)
        for kind in ("exp_avg", "exp_avg_sq"):
            expected = held[rank].state[played[rank][index]][kind]
            torch.testing.assert_close(optimizer.state[weight][kind], expected, rtol=1e-12, atol=1e-12)
    optimizer.drain()
    plain = [torch.nn.Parameter(torch.zeros(2))]
    named = [("moments.none", plain[0])]
    refused = hvd.DistributedOptimizer(torch.optim.SGD(plain, lr=1.0), named, exchange=hvd.Local(1, moments_every=1))
    _pull(plain, 0.0)
    with pytest.raises(hvd.UsageError, match=r"SGD has no moments(.|\n)*momentum, such as Adam"):
        refused.step()


@pytest.mark.parametrize("codec", ["bf16", "q8", "q4"])
@ranks(2, more=(3,), hvd="paceline.torch")
def test_averages_through_a_codec(rank: int, size: int, hvd: Any, codec: str) -> None:
    """Changes of models are sent rounded; the rounding error is added to the next change, and replicas stay equal."""
    weights = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((40, 50), (600,))]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(weights, lr=0.1),
        [(f"coded{codec}.{number}", one) for number, one in enumerate(weights)],
        exchange=hvd.Local(sync_every=2, fragments=2),
        codec=codec,
    )
    generator = torch.Generator().manual_seed(7)
    targets = [torch.randn(one.shape, generator=generator) for one in weights]
    for _ in range(200):
        optimizer.zero_grad()
        for weight, target in zip(weights, targets, strict=True):
            weight.grad = weight.detach() - target - (rank - (size - 1) / 2)
        optimizer.step()
    optimizer.drain()
    flat = torch.cat([one.detach().reshape(-1) for one in weights])
    for theirs in hvd.allgather_object(flat, name=f"coded{codec}.same"):
        assert torch.equal(theirs, flat)
    # The mean of the ranks' targets; the last rounding is of changes of 0.1 of what is left.
    torch.testing.assert_close(flat, torch.cat([one.reshape(-1) for one in targets]), rtol=0, atol=0.05)
    assert optimizer.in_flight() is not None  # what rounding has lost
    with pytest.raises(hvd.UsageError, match="a codec rounds"):
        optimizer.weight = 3


@ranks(2, hvd="paceline.torch")
def test_codecs_with_means_on_their_way_go_on_bit_for_bit(rank: int, size: int, hvd: Any) -> None:
    """Also after a drain: the rounding error of a weight is one residual, however its mean is sent."""
    generator = torch.Generator().manual_seed(7)
    target = torch.randn(40, 50, generator=generator) + rank

    def start(label: str) -> tuple[Any, Any]:
        weight = torch.nn.Parameter(torch.zeros(40, 50))
        exchange = hvd.Local(sync_every=4, delay=2, mixing=0.5, outer_momentum=0.5)
        sgd = torch.optim.SGD([weight], lr=0.125)
        return weight, hvd.DistributedOptimizer(sgd, [(label, weight)], exchange=exchange, codec="q4")

    def train(weight: Any, optimizer: Any, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            weight.grad = weight.detach() - target
            optimizer.step()

    for before in (3, 6):  # with a mean in flight in both
        weight, optimizer = start(f"coded.{before}")
        train(weight, optimizer, 5)
        optimizer.drain()
        train(weight, optimizer, before)
        state, value = copy.deepcopy(optimizer.state_dict()), weight.detach().clone()
        train(weight, optimizer, 7)
        optimizer.drain()
        again, resumed = start(f"coded.{before}")
        with torch.no_grad():
            again.copy_(value)
        resumed.load_state_dict(state)
        train(again, resumed, 7)
        resumed.drain()
        assert torch.equal(weight, again), before


@ranks(4, fresh=True, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, hvd="paceline.torch")
def test_sites(rank: int, size: int, hvd: Any) -> None:
    """Gradients are means of a site in every update, models of all ranks every 3."""
    sites = [hvd.add_process_set(hvd.ProcessSet(one)) for one in ([0, 3], [1, 2])]
    number = 0 if rank in (0, 3) else 1
    exchange = hvd.Local(sync_every=3, inside=sites[number])
    weights = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in ((3, 5), (4,))]
    named = [(f"site.{index}", one) for index, one in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.25), named, exchange=exchange)
    goals = [[0.0, 30.0], [10.0, 20.0]]
    played = [[torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for shape in ((3, 5), (4,))] for _ in sites]
    for step in range(1, 9):
        optimizer.zero_grad()
        total = sum(
            ((one - torch.arange(one.numel()).view(one.shape) - index - 10.0 * rank) ** 2 / 2).sum()
            for index, one in enumerate(weights)
        )
        total.backward()
        optimizer.step()
        for one, both in zip(played, goals, strict=True):
            _pull(one, sum(both) / 2)
            for weight in one:
                weight.data -= 0.25 * weight.grad
        if step % 3 == 0:
            for many in zip(*played, strict=True):
                mean = sum(one.data for one in many) / 2
                for one in many:
                    one.data.copy_(mean)
        for weight, one in zip(weights, played[number], strict=True):
            np.testing.assert_allclose(weight.detach().numpy(), one.detach().numpy(), rtol=0, atol=1e-11)
    optimizer.weight = 2
    with pytest.raises(hvd.UsageError, match=r"a weight was given together with hvd\.Local"):
        (weights[0].sum() + weights[1].sum()).backward()
    for wrong, words in ((hvd.ProcessSet([0]), "set that Horovod knows"), (sites[1 - number], "not this rank")):
        with pytest.raises(hvd.UsageError, match=words):
            _adam("site.wrong", hvd.Local(inside=wrong), [torch.nn.Parameter(torch.zeros(1))])


@ranks(2, more=(3,), hvd="paceline.torch")
def test_fragments_count_the_work_behind_them(rank: int, size: int, hvd: Any) -> None:
    """Each fragment is a mean by the samples since its own last average."""
    weights = [torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)) for _ in range(2)]
    named = [(f"worked.{number}", one) for number, one in enumerate(weights)]
    exchange = hvd.Local(sync_every=4, fragments=2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), named, exchange=exchange)
    played = np.zeros((size, 2))
    work = np.zeros((size, 2))
    for step in range(1, 11):
        optimizer.zero_grad()
        optimizer.weight = (rank + step) % 4
        for weight in weights:
            weight.sum().backward()
        optimizer.step()
        by = (np.arange(size) + step) % 4
        work += by[:, None]
        played -= (by > 0)[:, None]
        for part in range(2):
            if step % 4 == (part + 1) * 2 % 4 and work[:, part].any():
                played[:, part] = (work[:, part] * played[:, part]).sum() / work[:, part].sum()
                work[:, part] = 0
        assert np.allclose([one.detach()[0].item() for one in weights], played[rank], rtol=0, atol=1e-12), step


@ranks(2, more=(3,), hvd="paceline.torch")
def test_unequally_many_batches(rank: int, size: int, hvd: Any) -> None:
    """Ranks with 10, 7 and 0 batches end, with equal models; two epochs, the second with the ranks exchanged."""
    ways: list[dict[str, Any]] = [
        {"fragments": 2}, {"fragments": 3, "mixing": 0.5}, {"delay": 2, "mixing": 0.5}, {"mixing": 0.5},
    ]  # fmt: skip
    for number, choices in enumerate(ways):
        weights = [torch.nn.Parameter(torch.zeros(4, dtype=torch.float64)) for _ in range(3)]
        named = [(f"unequal{number}.{index}", one) for index, one in enumerate(weights)]
        exchange = hvd.Local(sync_every=4, outer_momentum=0.5, **choices)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.125), named, exchange=exchange)
        for epoch in range(2):
            count = (10, 7, 0)[rank if epoch == 0 else size - 1 - rank]
            for batch in hvd.uneven([torch.full((rows + 1, 1), rank + 1.0) for rows in range(count)], optimizer):
                sum((one - batch.mean()).square().sum() for one in weights).backward()
                optimizer.step()
                optimizer.zero_grad()
            flat = torch.cat([one.detach() for one in weights])
            for theirs in hvd.allgather_object(flat, name=f"unequal{number}.{epoch}"):
                assert torch.equal(theirs, flat)
        assert float(flat.min()) > 0 and float(flat.max()) < 2 * size


def _keras_update(optimizer: Any, weights: list[Any], targets: list[Any], compiled: bool) -> Any:
    def update() -> None:
        optimizer.apply_gradients([(one - target, one) for one, target in zip(weights, targets, strict=True)])

    optimizer.build(weights)
    return tf.function(update) if compiled else update


@keras_ranks(2, more=(3,), hvd="paceline.keras")
def test_keras_moments_become_means(rank: int, size: int, hvd: Any) -> None:
    """As test_moments_become_means; the rank that is played is trained by Keras, too."""
    for compiled in compiled_or_not():
        shapes = [(3, 5), (4,)]
        played = [[keras.Variable(np.zeros(shape)) for shape in shapes] for _ in range(size)]
        goals = [[np.arange(np.prod(shape)).reshape(shape) + 10.0 * one for shape in shapes] for one in range(size)]
        alone = [keras.optimizers.Adam(0.125) for _ in played]
        steps = [_keras_update(*all_of, False) for all_of in zip(alone, played, goals, strict=True)]
        weights = [keras.Variable(np.zeros(shape)) for shape in shapes]
        exchange = hvd.Local(sync_every=2, moments_every=3)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.125), name=f"m{compiled}", exchange=exchange)
        update = _keras_update(optimizer, weights, goals[rank], compiled)
        for step in range(1, 8):
            update()
            for one in steps:
                one()
            kept = [[*adam._momentums, *adam._velocities] for adam in alone] if step % 3 == 0 else []
            for lists in (kept, played if step % 2 == 0 else []):
                for many in zip(*lists, strict=True):
                    mean = sum(numpy(one) for one in many) / size
                    for one in many:
                        one.assign(mean)
        for one, wanted in zip(
            [*weights, *optimizer._velocities], [*played[rank], *alone[rank]._velocities], strict=True
        ):
            np.testing.assert_allclose(numpy(one), numpy(wanted), rtol=1e-5, atol=1e-5)
    bare = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="bare", exchange=hvd.Local(1, moments_every=1))
    with pytest.raises(hvd.UsageError, match=r"keeps no moments(.|\n)*momentum, such as Adam"):
        _keras_update(bare, [keras.Variable(np.zeros(3))], [np.ones(3)], False)()
    with pytest.raises(hvd.UsageError, match=r"delay=1 was given(.|\n)*Leave delay out"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), name="ahead", exchange=hvd.Local(delay=1))


@keras_ranks(4, env={"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}, hvd="paceline.keras")
def test_keras_sites_and_codecs(rank: int, size: int, hvd: Any) -> None:
    """Means within a site in every update; models of all ranks are sent through a codec and are equal after a drain."""
    sites = [hvd.add_process_set(hvd.ProcessSet(one)) for one in ([0, 1], [2, 3])]
    number = rank // 2
    for compiled in compiled_or_not():
        weights = [keras.Variable(np.zeros((40, 50), np.float32))]
        optimizer = hvd.DistributedOptimizer(
            keras.optimizers.SGD(0.25),
            name=f"sites{compiled}",
            exchange=hvd.Local(sync_every=3, fragments=3, inside=sites[number]),
            codec="q8",
        )
        goal = np.arange(2000, dtype=np.float32).reshape(40, 50) / 200 + rank
        update = _keras_update(optimizer, weights, [goal], compiled)
        update()  # no average yet: the only weight is in the second fragment of three
        mean = goal - rank + 0.5 + 2 * number
        np.testing.assert_allclose(numpy(weights[0]), mean / 4, rtol=1e-5, atol=1e-5)
        for _ in range(60):
            update()
        optimizer.drain()
        np.testing.assert_allclose(numpy(weights[0]), goal - rank + 1.5, rtol=0, atol=0.02)
        same_everywhere(weights, f"sites{compiled}.same")
