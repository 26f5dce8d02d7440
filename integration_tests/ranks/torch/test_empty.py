"""Parameters without elements and parameters without dimensions, in every exchange: weights as of one process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import Parameter

import paceline.torch as hvd
from integration_tests.support.arming import ARMED, CALM_S, is_armed, meet, state, step_armed
from integration_tests.support.debug import debug
from integration_tests.support.merging import ByHand, ask_for, repeat
from integration_tests.support.ranks import ranks

SHAPES: dict[str, tuple[int, ...]] = {
    "matrix": (5, 7),
    "none": (0,),
    "scalar": (),
    "no_rows": (0, 3),
    "other_scalar": (),
    "vector": (700,),
    "no_columns": (3, 0),
}
STEPS = 9
RATE = 2.0**-4


class OthersSGD(torch.optim.SGD):
    """An optimizer that is not known to be element-wise."""


def _gradient(rank: int, step: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Whole numbers, which show the rank and the position."""
    return (torch.arange(torch.Size(shape).numel()) % 61 + 64 * (rank + 1) + step).float().reshape(shape)


class _Training:
    """A model with gradients that do not depend on its weights: delayed ones are equal to those in time."""

    def __init__(
        self, rank: int, size: int, label: str, kind: Any = torch.optim.SGD, weight: float | None = None, **options: Any
    ) -> None:
        self.rank, self.size, self.weight, self.steps = rank, size, weight, 0
        self.model = torch.nn.ParameterDict({name: Parameter(torch.zeros(one)) for name, one in SHAPES.items()})
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.optimizer: Any = hvd.DistributedOptimizer(
            kind(self.model.parameters(), lr=RATE), self.model.named_parameters(f"empty.{label}"), **options
        )

    def step(self, _: int = 0) -> None:
        if self.weight is not None:
            self.optimizer.weight = self.weight
        self.optimizer.zero_grad()
        losses = [(one * _gradient(self.rank, self.steps, one.shape)).sum() for one in self.model.values()]
        torch.stack(losses).sum().backward()
        self.optimizer.step()
        self.steps += 1

    def resume(self) -> None:
        """Save the optimizer's state between two updates, and load it."""
        self.optimizer.consolidate_state_dict(to=None)
        hvd.barrier()  # states of a partial exchange belong to one round
        state = self.optimizer.state_dict()
        hvd.barrier()
        self.optimizer.load_state_dict(state)

    def check(self, same_bits: bool = True) -> None:
        self.optimizer.drain()
        if same_bits:
            hvd.check_replicas(self.model)
        for name, one in self.model.items():
            shape = SHAPES[name]
            everyone = [_gradient(rank, step, shape) for rank in range(self.size) for step in range(self.steps)]
            expected = -RATE * torch.stack(everyone).sum(0) / self.size
            assert one.shape == shape
            torch.testing.assert_close(one.detach(), expected, rtol=1e-6, atol=1e-6, msg=name)


def _adam(parameters: Any, lr: float) -> Any:
    return torch.optim.Adam(parameters, lr=lr)


CASES: dict[str, dict[str, Any]] = {
    "sync": {},
    "buckets": {"bucket_bytes": 4096},
    "groups": {"groups": 2},
    "weight": {"weight": 3.0},
    "weight_buckets": {"weight": 3.0, "bucket_bytes": 4096},
    "compression": {"compression": hvd.Compression.fp16},
    "pipelined": {"exchange": hvd.Pipelined(k=3)},
    "pipelined_buckets": {"exchange": hvd.Pipelined(k=3), "bucket_bytes": 4096},
    "pipelined_groups": {"exchange": hvd.Pipelined(k=3), "groups": 2},
    "pipelined_weight": {"exchange": hvd.Pipelined(k=3), "weight": 3.0},
    "majority": {"exchange": "majority"},
    "partial": {},
    "partial_buckets": {"bucket_bytes": 4096},
    "partial_weight": {"weight": 3.0},
    "local": {"exchange": hvd.Local(sync_every=4)},
    "local_fragments": {"exchange": hvd.Local(sync_every=4, fragments=3)},
    "local_weight": {"exchange": hvd.Local(sync_every=4), "weight": 3.0},
    "split": {"exchange": "split"},
    "split_buckets": {"exchange": "split", "bucket_bytes": 4096},
    "split_weight": {"exchange": "split", "weight": 3.0},
    "split_whole": {"exchange": hvd.Split(independent=True), "kind": OthersSGD},
}
# Weights differ from those of one process; all ranks must have the same.
UNLIKE_ONE_PROCESS: dict[str, dict[str, Any]] = {
    "q8": {"codec": "q8"},
    "q8_pipelined": {"codec": "q8", "exchange": hvd.Pipelined(k=3)},
    "q8_partial": {"codec": "q8", "exchange": "majority"},
    "q8_local": {"codec": "q8", "exchange": hvd.Local(sync_every=4)},
    "q8_split": {"codec": "q8", "exchange": "split"},
    "compensated": {"exchange": hvd.Pipelined(k=3, correction=0.25)},
    "adam": {"kind": _adam},
    "adam_split": {"kind": _adam, "exchange": "split"},
    "outer": {"exchange": hvd.Local(sync_every=4, outer_momentum=0.9, nesterov=True)},
    "delayed": {"exchange": hvd.Local(sync_every=4, delay=2)},
    "moments": {"kind": _adam, "exchange": hvd.Local(sync_every=4, moments_every=4)},
}


@pytest.mark.parametrize("case", CASES)
@ranks(2, 3)
def test_exchange(rank: int, size: int, case: str) -> None:
    every_rank = {"exchange": hvd.Partial(quorum=size)} if case.startswith("partial") else {}
    training = _Training(rank, size, case, **CASES[case], **every_rank)
    for _ in range(STEPS):
        training.step()
    training.resume()
    for _ in range(STEPS):
        training.step()
    training.check(same_bits=case != "majority")  # results of missed rounds are summed in another order


@pytest.mark.parametrize("case", UNLIKE_ONE_PROCESS)
@ranks(3, more=(2,))
def test_replicas(rank: int, size: int, case: str) -> None:
    training = _Training(rank, size, case, **UNLIKE_ONE_PROCESS[case])
    for _ in range(STEPS):
        training.step()
    training.resume()
    if case == "adam":
        hvd.broadcast_optimizer_state(training.optimizer, root_rank=0)
    training.step()
    training.optimizer.drain()
    hvd.check_replicas(training.model)
    assert all(one.shape == SHAPES[name] for name, one in training.model.items())
    assert training.model["matrix"].abs().sum() > 0


@ranks(2, 3, env=ARMED)
def test_armed_steps(rank: int, size: int) -> None:
    training = _Training(rank, size, "armed")
    hand = ByHand().start()
    training.step()
    meet()
    groups = (("none", "no_rows"), ("matrix", "no_columns"), ("vector",), ("scalar", "other_scalar"))
    hand.follow([[f"allreduce.empty.armed.{name}" for name in group] for group in groups], CALM_S)
    repeat("torch", training.step, is_armed, about=state)
    step_armed(training.step, STEPS)
    hand.end()
    training.check()


@pytest.mark.parametrize(
    ("policy", "exchange"), [("none", "sync"), ("single", "sync"), ("optimal", "sync"), ("optimal", "split")]
)
@ranks(2, 3, env={"PACELINE_FUSION": "optimal", **debug(fusion_warmup_steps=2)})
def test_plans(rank: int, size: int, policy: str, exchange: str) -> None:
    ask_for("torch", policy)
    training = _Training(rank, size, f"plans.{policy}.{exchange}", exchange=exchange)
    ends = ("active", "stock", "refused")
    repeat("torch", training.step, lambda: hvd.fusion_report().state in ends, about=hvd.fusion_report)
    assert hvd.fusion_report().state != "refused", hvd.fusion_report()
    for _ in range(STEPS):
        training.step()
    training.check()
