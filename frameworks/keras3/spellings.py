"""Spellings of Keras 2 in Horovod's documentation and examples, accepted by Keras 3.

Only spellings that Keras 3 would refuse are added; nothing that it understands is changed. In effect once
horovod.tensorflow is imported in a process whose tf.keras is Keras 3.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.trainer import Trainer

_MARK = "_paceline_spellings"


class _CallableList(list[Any]):
    """Value of `optimizer.variables` that can also be called, as `optimizer.variables()`."""

    def __call__(self) -> _CallableList:
        return self


def _optimizer_arguments() -> None:
    original = BaseOptimizer.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if "lr" in kwargs:
            kwargs["learning_rate"] = float(kwargs.pop("lr"))
        if not args and "learning_rate" not in kwargs:
            # An optimizer written for Keras 2 keeps its rate itself, and has an update_step without one.
            kwargs["learning_rate"] = 0.0
        original(self, *args, **kwargs)

    BaseOptimizer.__init__ = __init__


def _optimizer_attributes() -> None:
    def get(self: Any) -> Any:
        return self.learning_rate

    def put(self: Any, value: Any) -> None:
        self.learning_rate = value

    if not hasattr(BaseOptimizer, "lr"):
        BaseOptimizer.lr = property(get, put)
    holders = (BaseOptimizer, keras.optimizers.LossScaleOptimizer, getattr(keras.optimizers, "MultiOptimizer", None))
    for cls in (holder for holder in holders if holder is not None):
        own = vars(cls).get("variables")
        if isinstance(own, property) and own.fget is not None:
            cls.variables = property(functools.partial(_called, own.fget))


def _called(original: Any, self: Any) -> _CallableList:
    return _CallableList(original(self))


def _like_tensorflow_variables() -> None:
    """Add `variable.ref()`, a key for sets and dictionaries, and use in sessions, from the tf.Variable inside."""
    from keras.src.backend import Variable

    for method in ("ref", "_as_graph_element"):
        if not hasattr(Variable, method):
            setattr(Variable, method, _forwarded(method))


def _forwarded(method: str) -> Any:
    return lambda self: getattr(self.value, method)()


def _dropped(owner: Any, method: str, word: str) -> None:
    """Make `owner.method` accept and ignore the keyword `word`, which Keras 3 does not need."""
    original = getattr(owner, method)

    @functools.wraps(original)
    def accepting(self: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop(word, None)
        return original(self, *args, **kwargs)

    # Keras reads a layer's arguments from its signature in a way that ignores functools.wraps.
    accepting.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    setattr(owner, method, accepting)


def _lost_functions(tf_keras: Any) -> None:
    """Add the functions that tf.keras lacks under their long names (losses.mean_squared_error) and keras has."""
    for part in ("losses", "metrics"):
        ours, theirs = getattr(keras, part), getattr(tf_keras, part)
        for name in dir(ours):
            if not name.startswith("_") and not hasattr(theirs, name):
                setattr(theirs, name, getattr(ours, name))


def install(tf_keras: Any) -> None:
    """Accept all spellings, once."""
    if hasattr(BaseOptimizer, _MARK):
        return
    setattr(BaseOptimizer, _MARK, True)
    _optimizer_arguments()
    _optimizer_attributes()
    _like_tensorflow_variables()
    _lost_functions(tf_keras)
    _dropped(Trainer, "compile", "experimental_run_tf_function")
    _dropped(keras.layers.BatchNormalization, "__init__", "fused")
