"""PACELINE_CODEC: which operations are encoded, and which are not."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from integration_tests.ranks.codecs.expected import ELEMENTS, bound, gradient, mean
from integration_tests.support.debug import debug
from integration_tests.support.ranks import ranks

Q8 = {"PACELINE_CODEC": "q8", **debug(codec_error_feedback=False)}


@ranks(3, more=(2,), env=Q8, hvd="horovod.torch")
def test_scripts_of_horovod(rank: int, size: int, hvd: Any) -> None:
    parameter = torch.nn.Parameter(torch.zeros(ELEMENTS))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), [("unmodified", parameter)])
    (parameter * torch.from_numpy(gradient(rank))).sum().backward()
    optimizer.step()
    wrong = np.abs(-parameter.detach().numpy() - mean(size))
    assert wrong.max() > 1e-4 and (wrong <= bound("q8", size)).all()
    # A script's own operations: nothing is lost, and no residual of other operations is added.
    for name in ("own", "own", "unmodified"):
        found = hvd.allreduce(torch.from_numpy(gradient(rank)), name=f"script.{name}").numpy()
        np.testing.assert_allclose(found, mean(size), rtol=1e-5, atol=1e-6)
    assert (hvd.allreduce(torch.zeros(ELEMENTS), name="script.own") == 0).all()
    counts = torch.full((ELEMENTS,), 2**40 + rank)
    assert (hvd.allreduce(counts, op=hvd.Sum, name="counts") == size * 2**40 + size * (size - 1) // 2).all()


@ranks(3, more=(2,), env=Q8, hvd="paceline.torch")
def test_tensors_that_are_sent_unencoded(rank: int, size: int, hvd: Any) -> None:
    """Counts of partial rounds, averages of models, and optimizers with codec="none"."""
    _, fresh = hvd.partial_allreduce(torch.from_numpy(gradient(rank)), "counted", quorum=size)
    assert fresh == size
    for number, choices in enumerate(({"codec": "none"}, {"codec": "none", "exchange": hvd.Local(sync_every=1)})):
        parameter = torch.nn.Parameter(torch.zeros(ELEMENTS))
        sgd = torch.optim.SGD([parameter], lr=1.0)
        optimizer = hvd.DistributedOptimizer(sgd, [(f"exact{number}", parameter)], **choices)
        (parameter * torch.from_numpy(gradient(rank))).sum().backward()
        optimizer.step()
        np.testing.assert_allclose(-parameter.detach().numpy(), mean(size), rtol=1e-5, atol=1e-6)


@ranks(2, env={"PACELINE_CODEC": "q8"}, hvd="horovod.torch")
def test_unnamed_operations_leave_nothing(rank: int, size: int, hvd: Any) -> None:
    """An operation without a name is never called again: its residual is not kept."""

    def resident_bytes() -> int:
        with Path("/proc/self/statm").open() as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    ones, calls = torch.ones(1 << 18), 100
    for _ in range(10):
        hvd.allreduce(ones)
    before = resident_bytes()
    for _ in range(calls):
        hvd.allreduce(ones)
    assert resident_bytes() - before < calls * ones.nbytes / 4


@ranks(
    3,
    worlds=[pytest.param({"PACELINE_COLLECTIVE": one}, id=one) for one in ("ring", "linear", "direct")],
    hvd="paceline.torch",
)
def test_gradients_of_bfloat16_are_added_up_in_float32(rank: int, size: int, hvd: Any) -> None:
    """256 + 1 + 1 is 258 in float32, and 256 where sums on the way are bfloat16."""
    parameter: Any = torch.nn.Parameter(torch.zeros(ELEMENTS, dtype=torch.bfloat16))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.DistributedOptimizer(sgd, [("half", parameter)], op=hvd.Sum)
    (parameter * (256.0 if rank == 0 else 1.0)).sum().backward()
    optimizer.step()
    assert (parameter.detach() == -258).all()
