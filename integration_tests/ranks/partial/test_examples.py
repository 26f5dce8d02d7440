"""The examples, and what measures with them, train with exchanges that do not wait, and end with equal models."""

from __future__ import annotations

import math
import time
from typing import Any

import keras
import pytest

from integration_tests.support.examples import printed, results
from integration_tests.support.more import more
from integration_tests.support.ranks import run_ranks
from paceline.examples import characters

TENSORFLOW = {"KERAS_BACKEND": "tensorflow", "TF_NUM_INTRAOP_THREADS": "1"}
DELAYS = ("--compute-ms", "2", "--delay-ms", "10", "--delays")
ALL = ("sync", "majority", "solo")
LENGTHS = ("--steps", "8", "--batch-size", "4", "--ms-per-character", "0.05")


def _said(rank: int, size: int, example: str, arguments: tuple[str, ...], exchanges: tuple[str, ...]) -> list[str]:
    """Return the output of `example` with each of `exchanges`."""
    characters.LAYERS, characters.HELD_OUT_BYTES = 1, 8000  # less to compute, before the example takes them from there
    if example == "digits_keras":
        _delay_fit(0.01 * rank)
    return printed(example, *((*arguments, "--exchange", exchange) for exchange in exchanges))


def _delay_fit(late_s: float) -> None:
    """This rank is late in every step that Keras makes."""
    fit = keras.Model.fit
    late = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: time.sleep(late_s))
    keras.Model.fit = lambda self, *args, callbacks, **more: fit(self, *args, callbacks=[*callbacks, late], **more)


@pytest.mark.parametrize(
    ("example", "ranks", "exchanges", "arguments"),
    [
        more("benchmarks.uneven_digits", 3, (*ALL, "local"), ("--epochs", "2", *DELAYS, "random")),
        ("benchmarks.uneven_lengths", 3, ALL, LENGTHS),
        ("digits_torch", 2, ("majority",), ("--epochs", "2")),
        ("characters_lengths_torch", 2, ("solo",), LENGTHS[:4]),
        ("characters_torch", 3, ("solo",), ("--steps", "8")),
        # TensorFlow compiles, on each rank.
        more("digits_keras", 2, ("majority", "local"), ("--epochs", "1")),
        more("characters_tensorflow", 2, ("solo",), ("--steps", "8")),
    ],
)
def test_examples_end_with_equal_models(
    example: str, ranks: int, exchanges: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    env = {} if example.endswith("_torch") or example.startswith("benchmarks") else TENSORFLOW
    first, *others = run_ranks(_said, ranks, example, arguments, exchanges, env=env)
    for exchange, said in zip(exchanges, first):
        (result,) = results(said)
        assert result["equal"] is True and math.isfinite(result["loss"]) and 0 < result["accuracy"] <= 1
        in_rounds = exchange in ("majority", "solo")
        if example.startswith("benchmarks"):
            _check_pace(result, in_rounds)
        if example.startswith("digits"):
            assert ("in time" in said) is in_rounds
    assert others == [[""] * len(exchanges)] * (ranks - 1), "rank 0 speaks"


def _check_pace(result: dict[str, Any], in_rounds: bool) -> None:
    stats = result["stats"]
    assert result["steps_per_s"] > 0 and result["apart"] >= 0
    assert (stats["rounds"] > 0) is in_rounds and (stats["on_time"] + stats["late"] > 0) is in_rounds
    assert sum(stats["lags"]) == stats["on_time"] + stats["late"]
    assert in_rounds or result["apart"] == 0
