"""codec= of allreduces that a script makes by itself, under every form and in all frameworks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from integration_tests.ranks.codecs.expected import ELEMENTS, LOSSY, bound, gradient, mean
from integration_tests.support.ranks import run_ranks
from paceline.errors import UsageError

# Even with a codec set by variables, a script's own operations are sent unencoded.
VARIABLES = {"PACELINE_CODEC": "q8"}


def _judge(call: Callable[[str | None, str], Any], size: int, codec: str) -> bytes:
    """`call` gives the mean of the ranks' gradients through a codec, under a name."""
    first, again = (np.array(call(codec, f"hand/{codec}"), np.float64) for _ in range(2))
    wrong = np.abs(first - mean(size))
    assert (wrong <= bound(codec, size)).all(), f"{codec}: {wrong.max()} of {bound(codec, size).max()}"
    assert np.array_equal(first, again), "something was fed back"
    for exact in (None, "none"):
        right = np.abs(np.array(call(exact, f"hand/{codec}.{exact}"), np.float64) - mean(size))
        assert 10 * right.max() < wrong.max(), f"rounded without codec ({right.max()}), or not with it ({wrong.max()})"
    return first.tobytes()


def _torch(rank: int, size: int) -> list[bytes]:
    import paceline.torch as hvd

    hvd.init()
    given = torch.from_numpy(gradient(rank))

    def single(form: str, codec: str | None, name: str) -> Any:
        tensor = given.clone()
        answer = getattr(hvd, f"allreduce{form}")(tensor, name=f"one{form}.{name}", codec=codec)
        return (hvd.synchronize(answer) if "async" in form else answer).numpy()

    def grouped(form: str, codec: str | None, name: str) -> Any:
        tensors = [given.clone(), given.clone()]
        answer = getattr(hvd, f"grouped_allreduce{form}")(tensors, name=f"two{form}.{name}", codec=codec)
        one, other = hvd.synchronize(answer) if "async" in form else answer
        assert one.shape == other.shape == (ELEMENTS,)
        return one.numpy()

    def total(codec: str | None, name: str) -> Any:
        return hvd.allreduce(given, False, name, op=None, codec=codec).numpy() / size  # Horovod's old spelling of Sum

    forms = ("", "_", "_async", "_async_")
    ways: list[Callable[..., Any]] = [
        total,
        *(functools.partial(way, form) for way in (single, grouped) for form in forms),
    ]
    found = [_judge(way, size, codec) for codec in LOSSY for way in ways]
    required = given.clone().requires_grad_()
    hvd.allreduce(required, name="differentiated", codec="q8").square().sum().backward()
    assert required.grad is not None and required.grad.shape == given.shape
    whole, sparse = torch.ones(3, dtype=torch.int64), torch.ones(3).to_sparse()
    for tensor, options, expected in [
        (given, {}, "no name"),
        (given, {"name": "x", "op": hvd.Min}, "'x' is neither a sum nor an average"),
        (given, {"name": "x", "compression": hvd.Compression.fp16}, "compression"),
        (whole, {"name": "x"}, "was given int64"),
        (sparse, {"name": "x"}, "a sparse tensor"),
    ]:
        with pytest.raises(hvd.UsageError, match=f"Rank {rank}: allreduce.*codec='q8'.*{expected}"):
            hvd.allreduce(tensor, codec="q8", **options)
    with pytest.raises(hvd.UsageError, match="codec='q9' is not known"):
        hvd.allreduce(given, name="x", codec="q9")
    return found


def _tensorflow(rank: int, size: int) -> list[bytes]:
    import paceline.tensorflow as hvd

    hvd.init()
    given = tf.constant(gradient(rank))
    compiled: dict[tuple[str | None, str], Any] = {}

    def eager(codec: str | None, name: str) -> Any:
        return hvd.allreduce(given, name=f"eager.{name}", codec=codec).numpy()

    def graph(codec: str | None, name: str) -> Any:
        if (codec, name) not in compiled:
            compiled[codec, name] = tf.function(lambda: hvd.allreduce(given, name=f"graph.{name}", codec=codec))
        return compiled[codec, name]().numpy()

    def grouped(codec: str | None, name: str) -> Any:
        return hvd.grouped_allreduce([given, given], name=f"grouped.{name}", codec=codec)[1].numpy()

    found = [_judge(eager, size, "bf16"), *(_judge(way, size, "q8") for way in (eager, graph, grouped))]
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([2, 2]))
    with pytest.raises(UsageError, match="a sparse tensor"):
        hvd.allreduce(slices, name="x", codec="q8")
    return found


def _keras(rank: int, size: int) -> list[bytes]:
    import paceline.keras as hvd

    hvd.init()

    def call(codec: str | None, name: str) -> Any:
        return keras.ops.convert_to_numpy(hvd.allreduce(gradient(rank), name=name, codec=codec))

    return [_judge(call, size, codec) for codec in ("bf16", "q8")]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.more)])
@pytest.mark.parametrize("body", [_torch, _tensorflow], ids=["torch", "tensorflow"])
def test_as_the_codec_says(body: Callable[..., list[bytes]], size: int) -> None:
    first, *others = run_ranks(body, size, env=VARIABLES)
    assert all(first == other for other in others)


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_keras(backend: str) -> None:
    first, *others = run_ranks(_keras, 2, env={"KERAS_BACKEND": backend})
    assert all(first == other for other in others)
