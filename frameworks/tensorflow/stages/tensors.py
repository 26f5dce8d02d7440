"""TensorFlow's tensors for stages; messages hold NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.stages.execution.activations import Form, members, whole
from paceline.stages.execution.tensors import Memory


class StageTensors:
    """TensorFlow's implementation of paceline.stages.execution.tensors.Tensors, on TensorFlow's default device."""

    def unfit(self, value: Any) -> str:
        """Describe `value` if it cannot be sent; "" if it can."""
        if not isinstance(value, tf.Tensor):
            return f"a {type(value).__name__}"
        numeric = value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_complex or value.dtype.is_bool
        return "" if numeric else f"a tensor of {value.dtype.name}"

    def members(self, value: Any, whose: str) -> tuple[str, list[Any]]:
        """Return the kind of `value` and its tensors."""
        return members(value, whose, self.unfit)

    def whole(self, kind: str, tensors: Sequence[Any]) -> Any:
        """Rebuild a value from its kind and tensors."""
        return whole(kind, tensors)

    def host(self, tensor: Any) -> np.ndarray[Any, Any]:
        """Return the tensor as a NumPy array, without a copy if it is in host memory."""
        return np.asarray(tensor, order="C")

    def empty(self, form: Form) -> np.ndarray[Any, Any]:
        """Return an uninitialised array of this form."""
        return np.empty(form.shape, tf.as_dtype(form.dtype).as_numpy_dtype)

    def form(self, host: np.ndarray[Any, Any], differentiable: bool) -> Form:
        """Return the form of an array."""
        strides = tuple(stride // host.itemsize for stride in host.strides)
        return Form(tf.as_dtype(host.dtype).name, host.shape, strides, differentiable)

    def memory(self, host: np.ndarray[Any, Any]) -> Memory:
        """Return address and size of an array."""
        return Memory(host.ctypes.data, host.nbytes, host)

    def here(self, tensor: Any) -> tf.Tensor:
        """Convert an array to a tensor on the stage's device."""
        return tf.convert_to_tensor(tensor)

    def detached(self, tensor: tf.Tensor) -> tf.Tensor:
        """Return the tensor itself: values of a forward pass carry no graph."""
        return tensor

    def number(self, tensor: tf.Tensor) -> float:
        """Return the value of a scalar."""
        return float(np.asarray(tensor).astype(np.float64))

    def times(self, tensor: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
        """Return a scalar times a factor, in the scalar's type."""
        return tensor * tf.cast(factor, tensor.dtype)

    def split(self, tensor: tf.Tensor, count: int) -> list[tf.Tensor]:
        """Split rows as evenly as possible; the first parts get one more."""
        rows, more = divmod(tensor.shape[0], count)
        return list(tf.split(tensor, [rows + (part < more) for part in range(count)]))

    def joined(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Concatenate the rows of `parts`."""
        return tf.concat(list(parts), 0)
