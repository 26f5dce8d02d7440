"""Keras variables and their gradients: closed formulas of rank, step and place, which every rank can compute."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

SHAPES = [(3,), (2, 5), ()]


def gradient(rank: int, step: int, place: int) -> np.ndarray[Any, Any]:
    """Gradient of the variable at `place`; large on some ranks only, so that clipping before averaging shows."""
    shape = SHAPES[place]
    ramp = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    return np.asarray(0.1 * ramp + (1 + 10 * rank) * (0.3 + 0.2 * step - 0.1 * place), np.float32)


def gradients(rank: int, step: int) -> list[np.ndarray[Any, Any]]:
    """Gradients of all variables."""
    return [gradient(rank, step, place) for place in range(len(SHAPES))]


def averages(size: int, step: int, passes: int = 1) -> list[np.ndarray[Any, Any]]:
    """Mean over the ranks of the sums of `passes` equal backward passes, for all variables."""
    of_ranks = zip(*(gradients(rank, step) for rank in range(size)), strict=True)
    return [np.asarray(np.mean([passes * one for one in same], axis=0), np.float32) for same in of_ranks]


def variables_from_one() -> list[Any]:
    """Return a variable for each of SHAPES, filled with 1, 2, ..."""
    return [keras.Variable(np.full(shape, 1.0 + place, np.float32)) for place, shape in enumerate(SHAPES)]


def apply(optimizer: Any, variables: list[Any], values: list[Any]) -> None:
    """Apply gradients, one for each variable; None where a variable has none."""
    tensors = [None if value is None else keras.ops.convert_to_tensor(value) for value in values]
    optimizer.apply_gradients(list(zip(tensors, variables, strict=True)))
