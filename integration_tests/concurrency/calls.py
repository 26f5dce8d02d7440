"""Horovod's operations on arrays of NumPy, for scripts of any framework."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Finish = Callable[[], Array]


class Calls(ABC):
    """Operations of a library. Names must be equal on all ranks; `options` are Horovod's, such as `process_set`."""

    def __init__(self, module: str) -> None:
        self.hvd: Any = importlib.import_module(module)

    @abstractmethod
    def tensor(self, values: Array) -> Any:
        """Convert an array, with a copy."""

    def call(self, function: str, values: Array, *arguments: Any, name: str, **options: Any) -> Array:
        """Call a function of the module with one tensor, and return its result."""
        return self.array(getattr(self.hvd, function)(self.tensor(values), *arguments, name=name, **options))

    def call_of_thread(self, function: str, values: Array, *arguments: Any, name: str, **options: Any) -> Array:
        """Call a function as `call` does, such that operations of other threads are kept apart."""
        return self.call(function, values, *arguments, name=name, **options)

    @staticmethod
    def array(result: Any) -> Array:
        """Convert a result."""
        return np.array(result.numpy())

    @abstractmethod
    def start(self, values: Array, name: str, **options: Any) -> Finish:
        """Start an allreduce; return the function that waits for its result."""

    def grouped(self, values: list[Array], name: str, **options: Any) -> list[Array]:
        """Reduce several tensors as one operation."""
        found = self.hvd.grouped_allreduce([self.tensor(one) for one in values], name=name, **options)
        return [self.array(one) for one in found]

    def partial(self, values: Array, name: str, **options: Any) -> Array:
        """Contribute to a partial round."""
        return self.array(self.hvd.partial_allreduce(self.tensor(values), name, **options)[0])

    def flush(self, like: Array, name: str, **options: Any) -> Array:
        """Return the rest of partial rounds."""
        return self.array(self.hvd.flush_partial(self.tensor(like), name, **options).wait()[0])

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""


class TorchCalls(Calls):
    """Operations of PyTorch."""

    def __init__(self) -> None:
        super().__init__("paceline.torch")

    def tensor(self, values: Array) -> Any:
        import torch

        return torch.from_numpy(values.copy())

    def start(self, values: Array, name: str, **options: Any) -> Finish:
        handle = self.hvd.allreduce_async(self.tensor(values), name=name, **options)
        return lambda: self.array(self.hvd.synchronize(handle))

    def barrier(self) -> None:
        self.hvd.barrier()


class TensorFlowCalls(Calls):
    """Eager operations of TensorFlow, which wait for their results."""

    def __init__(self) -> None:
        super().__init__("paceline.tensorflow")
        self._functions: dict[tuple[Any, ...], Any] = {}

    def tensor(self, values: Array) -> Any:
        import tensorflow as tf

        return tf.constant(values)

    def call_of_thread(self, function: str, values: Array, *arguments: Any, name: str, **options: Any) -> Array:
        """Call a function within tf.function: TensorFlow's eager operations lose their names."""
        import tensorflow as tf

        def body(tensor: Any) -> Any:
            return getattr(self.hvd, function)(tensor, *arguments, name=name, **options)

        key = (function, name, *arguments)
        if key not in self._functions:
            self._functions[key] = tf.function(body, autograph=False)
        return self.array(self._functions[key](self.tensor(values)))

    def start(self, values: Array, name: str, **options: Any) -> Finish:
        found = self.call("allreduce", values, name=name, **options)
        return lambda: found

    def barrier(self) -> None:
        self.hvd.allgather_object(0, name="concurrency.barrier")


def calls_of(library: str) -> Calls:
    """Return the operations of Horovod's library."""
    return TensorFlowCalls() if library == "tensorflow" else TorchCalls()
