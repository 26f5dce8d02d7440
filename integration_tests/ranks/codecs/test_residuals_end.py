"""Residuals of a skipped step, or of a deleted model, change no weight."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import paceline.torch as hvd
from integration_tests.ranks.codecs.expected import ELEMENTS, gradient
from integration_tests.support.ranks import ranks


def _model(name: str, codec: str) -> tuple[list[Any], Any]:
    parameters = [torch.nn.Parameter(torch.zeros(ELEMENTS)) for _ in range(2)]
    named = [(f"{name}.{number}", one) for number, one in enumerate(parameters)]
    return parameters, hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), named, codec=codec)


def _backward(parameters: list[Any], gradients: list[np.ndarray]) -> None:
    for parameter, one in zip(parameters, gradients, strict=True):
        (parameter * torch.from_numpy(one)).sum().backward()


@pytest.mark.parametrize("codec", ["q8", "bf16"])
@ranks(3, env={"HOROVOD_FUSION_THRESHOLD": "0"})
def test_a_step_that_is_left_out_leaves_nothing(rank: int, size: int, codec: str) -> None:
    def trained(name: str, overflows: bool) -> list[Any]:
        parameters, optimizer = _model(name, codec)
        for step in range(4):
            optimizer.zero_grad()
            if overflows and step == 2:
                # As GradScaler skips a step: one gradient is infinite on one rank, another only too large.
                large, infinite = gradient(rank, 9) * np.float32(1e12), gradient(rank, 8)
                infinite[7] = np.inf if rank == 1 else 0
                _backward(parameters, [large, infinite])
                optimizer.synchronize()
                assert not torch.isfinite(parameters[1].grad).all(), "every rank sees it"
                optimizer.zero_grad()
            _backward(parameters, [gradient(rank, step), gradient(rank, step + 4)])
            optimizer.step()
        return [one.detach() for one in parameters]

    for one, other in zip(trained("with", True), trained("without", False), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("first_is_gone", [True, False])
@ranks(2)
def test_a_second_model_under_the_same_names_begins_with_nothing(rank: int, size: int, first_is_gone: bool) -> None:
    kept = []
    for scale in (1000.0, 0.0):
        parameters, optimizer = _model("fold", "q8")
        for step in range(3):
            optimizer.zero_grad()
            _backward(parameters, [gradient(rank, step) * np.float32(scale)] * 2)
            optimizer.step()
        moved = any(one.detach().any() for one in parameters)
        assert moved == (scale > 0), f"rank {rank}: gradients of zero moved the second model"
        kept.append(None if first_is_gone else optimizer)
        del optimizer
        gc.collect()
