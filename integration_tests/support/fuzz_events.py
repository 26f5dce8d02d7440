"""Random events for messages (fuzz.py, races.py): what one rank does, by a seed that all ranks share.

Each checks every value against one process, and leaves the world usable. All return the number of their messages.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from integration_tests.support.arming import TorchSteps
from integration_tests.support.keras_events import train as train_keras
from integration_tests.support.merging import ByHand
from integration_tests.support.training_events import train
from paceline.config import read

# Half a step of q8 for each partial sum and for its sum, of gradients below 1.
_Q8 = 2.0 / 127


def _optimizer(hvd: Any, name: str, elements: int, **options: Any) -> tuple[Any, Any]:
    """One parameter of zeros and its optimizer."""
    parameter = torch.nn.Parameter(torch.zeros(elements))
    return parameter, hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [(name, parameter)], **options)


def _step(parameter: Any, optimizer: Any, gradient: np.ndarray) -> None:
    optimizer.zero_grad()
    (parameter * torch.from_numpy(gradient)).sum().backward()
    optimizer.step()


def _gradient(rank: int, step: int, elements: int) -> np.ndarray:
    return np.random.default_rng((rank, step)).integers(0, 8, elements).astype("float32") / 8


def join(rank: int, size: int, seed: int) -> int:
    """One rank joins after some steps, maybe none; the others continue with optimizers in their first step.

    Its last operation is still open when it joins; others begin that operation later.
    """
    import paceline.torch as hvd

    hvd.init()
    same = random.Random(seed)
    leaver, elements = same.randrange(size), same.choice([1, 300, 5001])
    codec, feedback = same.choice([("q8", False), ("bf16", True), ("none", None)])
    options: dict[str, Any] = {"codec": codec, "collective": same.choice(["linear", "ring", "direct"])}
    options["exchange"] = same.choice(["sync", "pipelined"])  # the second has ranks agree in its first step
    if feedback is not None:
        options["error_feedback"] = feedback
    steps, of_leaver = 3, same.choice([0, 0, 1])
    own = random.Random(seed * size + rank)

    def start_last() -> Any:
        if rank != leaver:
            time.sleep(0.02 * own.random())
        return hvd.allreduce_async(torch.full((elements,), 4.0**rank), op=hvd.Sum, name=f"join.{seed}.last")

    def finish_last(handle: Any) -> None:
        found = hvd.synchronize(handle)
        assert (found == sum(4.0**other for other in range(size))).all(), f"rank {rank}, seed {seed}: {found[0]}"

    last: Any = None
    # The second one is new when the rank has left already.
    for number in range(2):
        parameter, optimizer = _optimizer(hvd, f"join.{seed}.{number}", elements, **options)
        making = of_leaver if number == 0 else 0
        for step in range(making if rank == leaver else steps):
            if rank != leaver and step == making and number == 0:
                finish_last(start_last())
            _step(parameter, optimizer, _gradient(rank, step, elements))
        if rank == leaver:
            last = start_last()
            break
        optimizer.drain()
        expected = -sum(
            (_gradient(other, step, elements) / size)
            for other in range(size)
            for step in range(making if other == leaver else steps)
        )
        lost = {"q8": _Q8 * size * steps, "bf16": 0.02 * steps, "none": 1e-5}[codec]
        np.testing.assert_allclose(
            parameter.detach().numpy(), expected, rtol=0, atol=lost, err_msg=f"rank {rank}, seed {seed}, {number}"
        )
    hvd.join()
    if last is not None:
        finish_last(last)
    return 2 * steps


def sets(rank: int, size: int, seed: int) -> int:
    """A process set ends with an operation open; the next one, of the same number and names, begins with nothing."""
    import paceline.torch as hvd

    hvd.init()
    if size < 3:
        return 0  # two ranks have no separate process set
    same = random.Random(seed)
    members = sorted(same.sample(range(size), same.randint(2, size - 1)))
    opener, elements = same.choice(members), same.choice([300, 5001])
    # An operation that the others never submit: a call of Horovod's, or a round that waits for all.
    kind = same.choice(["allreduce", "partial", "none"])
    for turn, scale in enumerate((1000.0, 0.0)):
        of_set = hvd.add_process_set(members)
        if rank in members:
            label = f"sets.{seed}"
            parameter, optimizer = _optimizer(hvd, label, elements, process_set=of_set, codec="q8", collective="direct")
            for step in range(4):
                _step(parameter, optimizer, scale / 3 * _gradient(rank, step, elements))
            assert scale or not parameter.detach().numpy().any(), f"rank {rank}, seed {seed}: zeros moved a weight"
            total = hvd.allreduce(torch.full((5,), rank), op=hvd.Sum, name=f"{label}.sum", process_set=of_set)
            assert total.tolist() == [sum(members)] * 5
        handle: Any = None
        if rank == opener and turn == 0:
            tensor, name = torch.ones(elements), f"sets.{seed}.open"
            if kind == "allreduce":
                handle = hvd.allreduce_async(tensor, name=name, process_set=of_set)
            elif kind == "partial":
                handle = hvd.partial_allreduce_async(tensor, name, quorum=len(members), process_set=of_set)
        hvd.remove_process_set(of_set)
        if handle is not None:
            try:
                result = handle.wait() if kind == "partial" else hvd.synchronize(handle)
            except Exception:
                continue
            raise AssertionError(f"rank {rank}, seed {seed}: an operation of a removed set gave {result}")
    return 10


def plans(rank: int, size: int, seed: int) -> int:
    """Plans that follow messages which end in any order, while collectives of ours are in flight."""
    import paceline.torch as hvd

    hvd.init()
    same, own = random.Random(seed), random.Random(seed * size + rank)
    hand = ByHand("torch").start()
    # A few hundred blocks each at most: more take minutes under a sanitizer.
    block_bytes = read().collective_block_bytes or 1 << 18
    sizes = [n for n in (1, 3, 1001, 20_011, 50_021, 100_003, 200_003) if 4 * n <= 400 * block_bytes]
    lengths = {f"plans.{seed}.{n:02}": same.choice(sizes) for n in range(24)}

    steps_of, steps = TorchSteps(rank, size, lengths), 8
    steps_of.step(0)
    hvd.barrier()
    names = [f"allreduce.{name}" for name in lengths]
    assert set(names) <= set(hand.names(f"plans.{seed}."))
    width = same.choice([3, 4, 6])
    hand.follow([names[n : n + width] for n in range(0, len(names), width)], 2.0)
    for number in range(1, steps):
        names = list(lengths)  # after the first time, in which one order is what plans are for, in any
        own.shuffle(names)
        steps_of.step(number, names)
    everyones = hvd.allgather_object(hand.names(f"plans.{seed}."))
    assert all(one == everyones[0] for one in everyones), f"seed {seed}: ranks number tensors differently"
    hvd.barrier()
    hand.end()
    return steps * len(lengths)


@contextmanager
def world_of_one() -> Iterator[None]:
    """A world of this process alone, until the end of the block, before the one that its variables name."""
    import horovod.torch as hvd

    of_many = {name: value for name, value in os.environ.items() if name.startswith("HOROVOD_")}
    for name in of_many:
        del os.environ[name]
    hvd.init()
    try:
        yield
    finally:
        hvd.shutdown()
        os.environ.update(of_many)


def worlds(rank: int, size: int, seed: int) -> int:
    """A new world in which some ranks had another one with an active plan: as after elastic resets."""
    import horovod.torch as hvd

    hvd.init()
    same = random.Random(seed)
    before = same.sample(range(size), same.randint(1, size - 1))
    lengths = {f"worlds.{seed}.{n}": same.choice([1, 1001, 50_021, 200_003]) for n in range(6)}

    def steps(count: int) -> None:
        steps_of = TorchSteps(hvd.rank(), hvd.size(), lengths)
        for number in range(count):
            steps_of.step(number)

    def planned() -> None:
        hand = ByHand("torch").start()
        steps(1)
        hvd.barrier()
        names = [f"allreduce.{name}" for name in lengths]
        hand.follow([names[:2], names[2:]], 2.0)
        steps(7)

    hvd.shutdown()
    if rank in before:
        with world_of_one():
            planned()
    hvd.init()
    assert hvd.size() == size
    steps(4)
    planned()
    hvd.shutdown()
    hvd.init()
    steps(4)
    return 16 * len(lengths)


EVENTS = {"join": join, "sets": sets, "plans": plans, "worlds": worlds, "training": train, "keras": train_keras}
# Builds of Horovod with a sanitizer are without TensorFlow (sanitizers.TORCH_ALONE).
OF_TENSORFLOW = ("keras",)
# Of all worlds with events.
VARIABLES = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1", "KERAS_BACKEND": "tensorflow"}
