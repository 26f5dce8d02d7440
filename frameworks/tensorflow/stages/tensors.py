"""TensorFlow's tensors for stages; what travels is NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from paceline.stages.execution.activations import Form, members, whole
from paceline.stages.execution.tensors import Memory


class StageTensors:
    """See paceline.stages.execution.tensors.Tensors. A stage is on TensorFlow's default device."""

    def unfit(self, value: Any) -> str:
        """See Tensors.unfit."""
        if not isinstance(value, tf.Tensor):
            return f"a {type(value).__name__}"
        numeric = value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_complex or value.dtype.is_bool
        return "" if numeric else f"a tensor of {value.dtype.name}"

    def members(self, value: Any, whose: str) -> tuple[str, list[Any]]:
        """Return the kind of `value` and its tensors."""
        return members(value, whose, self.unfit)

    def whole(self, kind: str, tensors: Sequence[Any]) -> Any:
        """Return what `members` took apart."""
        return whole(kind, tensors)

    def host(self, tensor: Any) -> np.ndarray[Any, Any]:
        """See Tensors.host: the tensor's own memory where that is the host's."""
        return np.asarray(tensor, order="C")

    def empty(self, form: Form) -> np.ndarray[Any, Any]:
        """See Tensors.empty."""
        return np.empty(form.shape, tf.as_dtype(form.dtype).as_numpy_dtype)

    def form(self, host: np.ndarray[Any, Any], differentiable: bool) -> Form:
        """See Tensors.form."""
        strides = tuple(stride // host.itemsize for stride in host.strides)
        return Form(tf.as_dtype(host.dtype).name, host.shape, strides, differentiable)

    def memory(self, host: np.ndarray[Any, Any]) -> Memory:
        """See Tensors.memory."""
        return Memory(host.ctypes.data, host.nbytes, host)

    def here(self, tensor: Any) -> tf.Tensor:
        """See Tensors.here."""
        return tf.convert_to_tensor(tensor)

    def detached(self, tensor: tf.Tensor) -> tf.Tensor:
        """See Tensors.detached: values of a forward pass know nothing of gradients."""
        return tensor

    def number(self, tensor: tf.Tensor) -> float:
        """See Tensors.number."""
        return float(np.asarray(tensor).astype(np.float64))

    def times(self, tensor: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
        """See Tensors.times."""
        return tensor * tf.cast(factor, tensor.dtype)

    def split(self, tensor: tf.Tensor, count: int) -> list[tf.Tensor]:
        """See Tensors.split."""
        rows, more = divmod(tensor.shape[0], count)
        return list(tf.split(tensor, [rows + (part < more) for part in range(count)]))

    def joined(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Concatenate the rows of `parts`."""
        return tf.concat(list(parts), 0)
