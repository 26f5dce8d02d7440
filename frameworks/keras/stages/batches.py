"""Mini-batches of fit(), evaluate() and predict()."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from paceline.errors import UsageError
from paceline.keras.backend import keras


def tensors_of(value: Any) -> Any:
    """Convert arrays to tensors of the backend. As in fit() of Keras, floating-point NumPy arrays become floatx."""

    def tensor_of(one: Any) -> Any:
        if isinstance(one, np.ndarray) and one.dtype.kind == "f":
            one = one.astype(keras.backend.floatx(), copy=False)
        return keras.ops.convert_to_tensor(one) if isinstance(one, (np.ndarray, np.generic)) else one

    return None if value is None else keras.tree.map_structure(tensor_of, value)


class Batches:
    """Batches of arrays; or, without `y`, of an iterable of (batch, target) pairs that can be iterated again.

    `rows`: number of rows of the arrays; None for an iterable. `steps`: number of batches; None if not known. Raises
    UsageError for arrays of different lengths.
    """

    def __init__(self, x: Any, y: Any, batch_size: int, whose: str) -> None:
        self._x, self._y, self._size = x, y, batch_size
        self.arrays = y is not None
        self.rows: int | None = None
        self.steps: int | None = None
        if not self.arrays:
            with contextlib.suppress(TypeError):  # of unknown length
                self.steps = len(x)
        else:
            arrays = [one for one in keras.tree.flatten([x, y]) if one is not None]
            rows = {int(one.shape[0]) for one in arrays}
            if len(rows) != 1:
                raise UsageError(
                    f"{whose} has {' and '.join(map(str, sorted(rows))) or 'no'} rows: expected one number.",
                    "Give x and y with as many rows each, on all ranks.",
                )
            self.rows = rows.pop()
            self.steps = -(-self.rows // batch_size)

    def least(self) -> int | None:
        """Number of rows of the smallest batch; None if not known."""
        return None if self.rows is None else (self.rows % self._size or min(self.rows, self._size))

    def __call__(self, order: np.ndarray[Any, Any] | None) -> Iterator[tuple[Any, Any]]:
        """Yield the batches; `order` permutes the rows of arrays."""
        if not self.arrays:
            for pair in self._x:
                batch, target = pair
                yield tensors_of(batch), tensors_of(target)
            return
        assert self.rows is not None
        x, y = tensors_of(self._x), tensors_of(self._y)
        for begin in range(0, self.rows, self._size):
            rows = np.arange(begin, min(begin + self._size, self.rows))
            chosen = rows if order is None else order[rows]
            yield _rows(x, chosen), _rows(y, chosen)


def inputs(x: Any, batch_size: int) -> Iterator[Any]:
    """Yield the batches of predict(): of arrays, or of an iterable of batches or (batch, target) pairs."""
    if all(hasattr(one, "shape") for one in keras.tree.flatten(x)):
        for batch, _ in Batches(x, x, batch_size, "The data")(None):
            yield batch
        return
    for one in x:
        yield one[0] if isinstance(one, tuple) else one


def _rows(value: Any, chosen: np.ndarray[Any, Any]) -> Any:
    if value is None:
        return None
    return keras.tree.map_structure(lambda one: keras.ops.take(one, chosen, axis=0), value)


def rows_of(batch: Any, target: Any) -> int:
    """Number of rows of a batch."""
    found = [one for one in keras.tree.flatten([batch, target]) if one is not None]
    return int(found[0].shape[0]) if found else 1
