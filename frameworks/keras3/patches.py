"""Patches where Keras 3 decides about an optimizer, or about its steps, without consulting it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras.src.trainers.trainer import Trainer

from paceline.errors import UsageError
from paceline.keras3.padding import unmarked
from paceline.keras3.sharded import Sharded, load, save
from paceline.keras3.uneven import UnevenData
from paceline.keras3.update import overlapping, run_update, unconverted

_MARK = "_paceline_original"
# Reductions of losses.
_BY_WEIGHT = "mean_with_sample_weight"
_MEANS = ("sum_over_batch_size", "mean", _BY_WEIGHT)

# Returns the wrapped optimizer that one is or holds (paceline.keras3.optimizer.find).
Find = Callable[[Any], Any]


def _patch_compile(find: Find) -> None:
    original = Trainer.compile
    names = list(inspect.signature(original).parameters)[1:]

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args)), **kwargs}
        if find(given.get("optimizer")) is not None:
            if given.get("jit_compile", "auto") == "auto":
                given["jit_compile"] = False  # Keras would choose XLA where there is a GPU
            elif given["jit_compile"]:
                raise UsageError(
                    "compile(jit_compile=True) cannot be used with DistributedOptimizer: Horovod's operations have no "
                    "form that the compiler knows.",
                    "Leave jit_compile out, or set it to False.",
                )
        return original(self, **given)

    setattr(compile, _MARK, original)
    Trainer.compile = compile


def _patch_loss_scaling(find: Find) -> None:
    """Average before the overflow check: an overflow on one rank must skip the same step on all.

    Keras wraps the compiled optimizer in a LossScaleOptimizer for the policy mixed_float16. If only the inner one
    averaged, ranks without overflow would wait for the one that skips.
    """
    scaling = keras.optimizers.LossScaleOptimizer
    original = scaling.apply

    @unconverted
    @functools.wraps(original)
    def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
        inner = find(self)
        grads = list(grads)
        if inner is None or inner._distributed.updating is not None or not grads:
            return original(self, grads, trainable_variables)
        variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
        return run_update(inner, self, grads, variables, lambda new: original(self, new, trainable_variables))

    def register_local_var(self: Any, var: Any) -> None:
        find(self).register_local_var(var)

    def save_own_variables(self: Any, store: Any) -> None:
        inner = find(self)
        if isinstance(inner, Sharded):
            save(self, inner, store)
        else:
            super(scaling, self).save_own_variables(store)

    def load_own_variables(self: Any, store: Any) -> None:
        inner, inherited = find(self), super(scaling, self).load_own_variables
        if isinstance(inner, Sharded):
            load(self, inner, store, inherited)
        else:
            inherited(store)

    def consolidate_state_dict(self: Any, to: int | None = 0) -> None:
        inner = find(self)
        if isinstance(inner, Sharded):
            inner.consolidate_state_dict(to)

    setattr(apply, _MARK, original)
    scaling.apply = apply
    scaling.save_own_variables, scaling.load_own_variables = save_own_variables, load_own_variables
    scaling.consolidate_state_dict = consolidate_state_dict
    scaling.register_local_var = register_local_var
    # Methods of the wrapped optimizer, which users cannot reach.
    scaling.drain = lambda self: find(self).drain()
    scaling.real_weights = lambda self: find(self).real_weights()
    scaling.in_flight = lambda self: find(self).in_flight()
    scaling.load_in_flight = lambda self, state: find(self).load_in_flight(state)
    scaling.weight = property(lambda self: find(self).weight)

    def set_attribute(self: Any, name: str, value: Any) -> None:
        inner = find(self) if name == "weight" else None
        if inner is not None:  # see Distributed.__setattr__
            inner.weight = value
        else:
            super(scaling, self).__setattr__(name, value)

    scaling.__setattr__ = set_attribute


def _patch_train_step(find: Find) -> None:
    """Record the batch size of a step for an optimizer with weight="samples"; let messages of others begin early."""
    trainer: Any = next(base for base in keras.Model.__mro__ if "train_step" in vars(base))  # of the backend
    original = trainer.train_step

    @functools.wraps(original)
    def train_step(self: Any, data: Any) -> Any:
        optimizer = find(getattr(self, "optimizer", None))
        if optimizer is None:
            return original(self, data)
        state = optimizer._distributed
        if not isinstance(state.weight, str):
            with overlapping(optimizer, self.optimizer):
                return original(self, data)
        state.samples = _samples(self, data)
        try:
            return original(self, data)
        finally:
            state.samples = None

    setattr(train_step, _MARK, original)
    trainer.train_step = train_step


def _samples(model: Any, data: Any) -> Any:
    """Batch size, or the sum of the sample weights if the loss is divided by that."""
    x, _, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    losses = keras.tree.flatten(getattr(model, "loss", None))
    others = [one for one in losses if getattr(one, "reduction", _MEANS[0]) not in _MEANS]
    if others:
        raise UsageError(
            f'weight="samples" was given for the loss {others[0].name!r} with reduction={others[0].reduction!r}, which '
            "is not a mean.",
            "Use a loss that is a mean over the batch, or set optimizer.weight to a variable.",
        )
    weighted = [one for one in losses if getattr(one, "reduction", "") == _BY_WEIGHT]
    if sample_weight is not None and weighted:
        weights = keras.tree.flatten(sample_weight)
        if len(weights) > 1 or len(losses) > len(weighted):
            raise UsageError(
                'weight="samples" was given for losses that are not all divided by the same sample weights.',
                'Use losses with reduction="sum_over_batch_size", or set optimizer.weight to a variable.',
            )
        return keras.ops.sum(weights[0])
    return keras.ops.shape(next(one for one in keras.tree.flatten(x) if one is not None))[0]


def _patch_fit(find: Find) -> None:
    """Accept data with different numbers of batches on the ranks."""
    trainer: Any = next(base for base in keras.Model.__mro__ if "fit" in vars(base))  # of the backend
    original, build = trainer.fit, Trainer._symbolic_build
    names = list(inspect.signature(original).parameters)[1:]

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args)), **kwargs}
        data = given.get("x")
        if not isinstance(data, UnevenData):
            return original(self, *args, **kwargs)
        return original(self, **data.fit_arguments(self, find, given))

    @functools.wraps(build)
    def _symbolic_build(self: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        return build(self, unmarked(iterator), data_batch)

    setattr(fit, _MARK, original)
    trainer.fit = fit
    Trainer._symbolic_build = _symbolic_build


def install(find: Find) -> None:
    """Apply all patches, once."""
    if not hasattr(Trainer.compile, _MARK):
        _patch_compile(find)
    if not hasattr(keras.Model.train_step, _MARK):
        _patch_train_step(find)
    if not hasattr(keras.Model.fit, _MARK):
        _patch_fit(find)
    if not hasattr(keras.optimizers.LossScaleOptimizer.apply, _MARK):
        _patch_loss_scaling(find)
