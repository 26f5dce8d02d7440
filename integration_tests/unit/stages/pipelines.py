"""Pipelines on stages that are threads, with the arguments of most tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import paceline.torch as hvd
from integration_tests.support.stage_threads import in_threads
from integration_tests.support.stage_training import N, data, mse, net, sgd


def made(communicator: Any, model: Any = None, **arguments: Any) -> Any:
    arguments = {"optimizer": sgd, "loss": mse, "n_microbatches": N, **arguments}
    return hvd.Pipeline(net() if model is None else model, communicator=communicator, **arguments)


def piped(size: int, use: Callable[[Any], Any], model: Callable[[], Any] = net, **arguments: Any) -> list[Any]:
    """Results of `use(pipeline)` on each of `size` stages; models are made before, pipelines closed afterwards."""
    models = [model() for _ in range(size)]

    def body(communicator: Any) -> Any:
        pipeline = made(communicator, models[communicator.rank], **arguments)
        found = use(pipeline)
        pipeline.close()
        return found

    return in_threads(size, body)


def trained(size: int, batches: Any, model: Callable[[], Any] = net, **arguments: Any) -> list[tuple[list[float], Any]]:
    """Losses of all steps, including the steps of a drain, and the whole state, which the first stage has."""

    def use(pipeline: Any) -> tuple[list[float], Any]:
        losses = [pipeline.step(*batch).item() for batch in batches]
        losses += [loss.item() for loss in pipeline.drain()]
        return losses, pipeline.consolidate()

    return piped(size, use, model, **arguments)


def assert_close(found: Any, expected: Any, atol: float = 1e-12) -> None:
    """Assert that tensors are equal, by name."""
    torch.testing.assert_close(dict(found), dict(expected), rtol=0, atol=atol)


def all_hear(said: str, size: int, model: Callable[[], Any] = net, batch: Any = None, **arguments: Any) -> None:
    """Assert that a pipeline or its first step raises `said` on all stages; a UsageError has a remedy."""

    def body(communicator: Any) -> str:
        pipeline = None
        with pytest.raises(Exception) as caught:
            pipeline = made(communicator, model(), **{"n_microbatches": 2, **arguments})
            pipeline.step(*(batch or data(0, 4)))
        if pipeline is not None:
            with pytest.raises(hvd.UsageError) as again:
                pipeline.step(*(batch or data(0, 4)))
            assert "has ended" in str(again.value) or str(again.value) == str(caught.value)
        assert caught.type is not hvd.UsageError or len(str(caught.value).splitlines()) > 1
        return f"{caught.typename}: {caught.value}"

    for text in in_threads(size, body):
        assert said in text, text
