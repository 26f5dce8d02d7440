"""Entry points for the lines added to Horovod's Python files (plugin/horovod/shims/keras3.py) under Keras 3.

Nothing here loads Keras 3 by itself: a process with Keras 2 (TF_USE_LEGACY_KERAS=1) runs none of this.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from paceline import variables
from paceline.errors import UsageError, UserError
from paceline.horovod.shims import unmodified


def used_as(module: Any) -> bool:
    """True if `module` (keras or tf.keras) is Keras 3."""
    return str(getattr(module, "__version__", "2")).startswith("3")


def _loaded() -> Any:
    """Return Keras 3 if this process has loaded it on TensorFlow, else None."""
    keras = sys.modules.get("keras")
    if keras is None or not used_as(keras) or keras.backend.backend() != "tensorflow":
        return None
    return keras


def install(tensorflow: Any) -> None:
    """Patch Keras 3. Called when horovod.tensorflow is imported."""
    if used_as(tensorflow.keras) and _loaded() is not None:
        from paceline.keras3 import optimizer, patches, spellings

        spellings.install(tensorflow.keras)
        patches.install(optimizer.find)


# Paceline sets `exchange` while it wraps an optimizer itself; otherwise the environment variables decide.
BY_VARIABLES = object()
# `Settings.exchange` and `Settings.encoding` for optimizers that Horovod's function wraps.
exchange: Any = BY_VARIABLES
encoding: Any = BY_VARIABLES


def _exchange() -> Any:
    if exchange is not BY_VARIABLES:
        return exchange
    if not unmodified.asked():
        return None
    from paceline.config import exchange_of_variables
    from paceline.keras3.tensorflow_wire import TensorFlowWire
    from paceline.registry.making import maker

    return maker(exchange_of_variables(), TensorFlowWire)


def _encoding(process_set: Any) -> Any:
    if encoding is not BY_VARIABLES:
        return encoding
    if not variables.given("collective", "codec", "exchange"):
        return None
    from paceline.arguments import choice_asked
    from paceline.codecs.encoding import Encoding
    from paceline.native.library import loaded

    return Encoding(loaded("tensorflow"), process_set, choice_asked())


def local_weights(keras: Any, local_layers: Any) -> list[Any]:
    """Trained weights of `local_layers` (built layers, one or several, or None); their gradients stay on their rank."""
    layers = [] if local_layers is None else local_layers
    layers = [layers] if isinstance(layers, keras.layers.Layer) else list(layers)
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise UserError(
                f"local_layers has {type(layer).__name__}, which is not a layer.",
                "Give layers of Keras, such as model.layers[0].",
            )
    return [weight for layer in layers for weight in layer.trainable_weights]


def is_optimizer(optimizer: Any) -> bool:
    """True if `optimizer` is one of Keras 3."""
    return any(base.__module__ == "keras.src.optimizers.base_optimizer" for base in type(optimizer).__mro__)


def distributed_optimizer(optimizer: Any, name: str | None, **choices: Any) -> Any:
    """Wrap an optimizer for Horovod's create_distributed_optimizer; `choices`: fields of keras3.settings.Settings."""
    import horovod.tensorflow as hvd

    from paceline.keras3.optimizer import distribute
    from paceline.keras3.settings import Settings

    keras = sys.modules["keras"]
    if keras.backend.backend() != "tensorflow":
        raise UsageError(
            f"horovod.keras and horovod.tensorflow.keras need Keras on TensorFlow, not on {keras.backend.backend()}.",
            "Set KERAS_BACKEND=tensorflow, or use paceline.keras, which also serves KERAS_BACKEND=torch.",
        )
    prefix = name or f"Distributed{type(optimizer).__name__}"
    own = {"exchange": _exchange(), "encoding": _encoding(choices["process_set"])}
    return distribute(optimizer, Settings(name=prefix, average=hvd.Average, **own, **choices))


def load_model(
    keras: Any,
    wrap: Callable[[Any], Any],
    filepath: Any,
    custom_optimizers: Iterable[type[Any]] | None,
    objects: Any,
    **loading: Any,
) -> Any:
    """Load a model and wrap its optimizer, which keeps its state. `loading`: arguments of keras.models.load_model."""
    custom = {cls.__name__: cls for cls in custom_optimizers or ()}
    model = keras.models.load_model(filepath, custom_objects={**custom, **(objects or {})}, **loading)
    if getattr(model, "optimizer", None) is not None:
        model.jit_compile = False
        model.optimizer = wrap(model.optimizer)
    return model


def replace_callbacks(module: Any, keras: Any) -> None:
    """Replace the callbacks of `module` by those for Keras 3."""
    if used_as(keras) and _loaded() is not None:
        from paceline.keras3.callbacks import CALLBACKS

        for callback in CALLBACKS:
            setattr(module, callback.__name__, callback)


def sync_batch_normalization(original: Any) -> Any:
    """Return SyncBatchNormalization for Keras 3 if it is in use, else `original` (a decorator)."""
    if not any(base.__module__.startswith("keras.src.") for base in original.__mro__) or _loaded() is None:
        return original
    from paceline.keras3.batch_norm import SyncBatchNormalization

    return SyncBatchNormalization


def _is_keras_variable(variable: Any) -> bool:
    keras = _loaded()
    return keras is not None and isinstance(variable, keras.Variable)


def tensorflow_variables(variables: Iterable[Any]) -> list[Any]:
    """Replace variables of Keras 3 by their tf.Variables; others stay as they are."""
    return [variable.value if _is_keras_variable(variable) else variable for variable in variables]


def broadcast_variables(variables: Iterable[Any]) -> list[Any]:
    """Return the tf.Variables to broadcast, without random number generators: ranks must drop different units.

    `model.variables` of Keras 3 includes their states, that of Keras 2 does not.
    """
    chosen = (
        variable
        for variable in variables
        if not (_is_keras_variable(variable) and variable.name == "seed_generator_state")
    )
    return tensorflow_variables(chosen)


def elastic_state(state: type) -> type:
    """Make Horovod's class of elastic states keep gradients in flight, for models of Keras 3 (a decorator).

    It also builds the optimizer first: a worker that joins later must have as many variables as the others.
    """
    begin: Callable[..., None] = vars(state)["__init__"]
    save, restore, synchronise = (vars(state)[name] for name in ("save", "restore", "sync"))

    @functools.wraps(begin)
    def __init__(self: Any, model: Any, optimizer: Any = None, *args: Any, **kwargs: Any) -> None:
        held = optimizer or getattr(model, "optimizer", None)
        self._in_flight = None
        if is_optimizer(held):
            from paceline.keras3.elastic import InFlight
            from paceline.keras3.state import build_optimizer

            build_optimizer(model, held)
            self._in_flight = InFlight(held)
        begin(self, model, optimizer, *args, **kwargs)

    def save_all(self: Any) -> None:
        save(self)
        if self._in_flight is not None:
            self._in_flight.save()

    def restore_all(self: Any) -> None:
        restore(self)
        if self._in_flight is not None:
            self._in_flight.restore()

    def sync_all(self: Any) -> None:
        if self._in_flight is None:
            synchronise(self)
        else:
            self._in_flight.sync(lambda: synchronise(self))

    for name, method in (("__init__", __init__), ("save", save_all), ("restore", restore_all), ("sync", sync_all)):
        setattr(state, name, method)
    return state
