"""Make a Keras 3 optimizer average its gradients over all ranks.

The wrapped optimizer is not copied: the result is a second view of the same object. It shares all attributes of the
original (variables, schedule, everything), so the two cannot diverge. Its class is a subclass of the original's class
with the same name, which averages gradients before the inherited `apply` gets them. All later steps (unscaling,
clipping, weight decay, the update, moving averages, counting) are Keras' own.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import keras
from keras.src import api_export
from keras.src.saving import object_registration

from paceline.errors import UsageError
from paceline.exchange.ending import at_end
from paceline.exchange.in_flight_state import with_residuals, without_residuals
from paceline.exchange.own_names import own_number
from paceline.exchange.sync_settings import Sync
from paceline.keras3.settings import Settings, split
from paceline.keras3.sharded import Sharded, check
from paceline.keras3.update import State, accumulate, communication, reduce, run_update, unconverted
from paceline.native.library import loaded


class Distributed:
    """Paceline's part of the made class; `super()` is the class of the wrapped optimizer."""

    _distributed_settings: Settings
    # Outside the instance's dictionary, which is shared with the original optimizer.
    __slots__ = ()

    @property
    def _distributed(self) -> State:
        try:
            state: State = object.__getattribute__(self, "_distributed_state")
        except AttributeError:
            state = State(_numbered(self._distributed_settings))
            object.__setattr__(self, "_distributed_state", state)
            if state.exchange is not None:
                at_end(state.exchange, self.drain, self._weights, "model.optimizer.drain()")
        return state

    @property
    def _agg_helper(self) -> Any:
        """Accumulator of gradients under Horovod's name; None unless backward_passes_per_step > 1."""
        return self._distributed.accumulator

    def __reduce__(self) -> Any:
        # A copy or a pickle is of the wrapped class, for processes without Horovod.
        plan: Any = super().__reduce__()
        rebuild, *rest = plan
        lineage = type(self).__mro__
        return (getattr(lineage[lineage.index(Distributed) + 1], rebuild.__name__), *rest)

    @property
    def weight(self) -> Any:
        """Weight of this rank's gradients (docs/guides/weights.md): None, "samples", a number, or a variable of one.

        It applies from the next step on, also if Model.fit has compiled one.
        """
        return self._distributed.weight

    @weight.setter
    def weight(self, weight: Any) -> None:
        if self._distributed.weigh(weight):
            _compile_again(self)

    def __setattr__(self, name: str, value: Any) -> None:
        # Keras would treat a variable as one of the optimizer's, to be saved and broadcast.
        if name == "weight":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def register_local_var(self, var: Any) -> None:
        """Keep the gradients of `var` on this rank: they are not averaged."""
        self._distributed.local.add(self._var_key(var))  # type: ignore[attr-defined]

    def drain(self) -> int:
        """Apply the updates whose gradients are in flight. Nothing to do for a synchronous exchange.

        Call it on all ranks after the same update, not in a graph. The next K - 1 updates are skipped, as at the
        beginning. Gradients that overflowed under loss scaling make no update.

        Returns:
            The number of updates.
        """
        state = self._distributed
        if state.exchange is None:
            return 0
        inherited = super().apply  # type: ignore[misc]
        updates = 0
        for results, scale in state.exchange.drained_means(self._weights):
            variables = [self._trainable_variables[index] for index in results]  # type: ignore[attr-defined]
            grads = state.wire.tensors_like(list(results.values()), variables)
            divisor = scale * (state.settings.backward_passes_per_step if state.averages_passes else 1)
            if divisor != 1:
                grads = [grad / divisor for grad in grads]
            if scale != 1 and not state.wire.finite(grads):
                continue
            weights: Any = partial(dict, list(zip(results, variables)))
            with state.update([]):
                state.exchange.around.update_of_drain(weights, partial(inherited, grads, variables))
            self._iterations.assign_add(state.settings.backward_passes_per_step - 1)  # type: ignore[attr-defined]
            updates += 1
        state.exchange.drained(self._weights, updates)
        return updates

    def _weights(self) -> dict[int, Any]:
        return dict(enumerate(self._trainable_variables))  # type: ignore[attr-defined]

    def real_weights(self) -> AbstractContextManager[Any]:
        """Context, for evaluation and saving, with the weights that updates produced. Not in a graph.

        Only a pipelined exchange with a correction changes variables between updates: to a prediction of the weights to
        which their gradients will be applied.
        """
        exchange = self._distributed.exchange
        return nullcontext() if exchange is None else exchange.real_weights()

    def in_flight(self) -> dict[str, Any] | None:
        """Return the gradients in flight as NumPy arrays, to be saved with the model; None if there are none.

        Involves no other rank and changes nothing. Every rank has the same, except for the residuals of a codec's error
        feedback.
        """
        distributed = self._distributed
        if distributed.exchange is not None:
            state: dict[str, Any] | None = distributed.exchange.state()
            return state
        encoding = distributed.settings.encoding
        return None if encoding is None else with_residuals(None, encoding.state(), Sync.tag)

    def load_in_flight(self, state: dict[str, Any] | None) -> None:
        """Continue with gradients in flight from `in_flight`.

        Call it on all ranks with the same state, not in a graph.
        """
        distributed = self._distributed
        if distributed.exchange is None:
            if state is not None and state["in_flight"]:
                raise UsageError(
                    "Gradients in flight were given to an optimizer with a synchronous exchange.",
                    "Use the exchange that the state was saved with, or drain() before saving.",
                )
            if distributed.settings.encoding is not None:
                distributed.settings.encoding.load(None if state is None else without_residuals(state)[1])
            return
        if state is None:
            distributed.exchange.forget()
            distributed.exchange.wire.encoding.load(None)
            return
        in_flight = state["in_flight"]
        if not self.built:  # type: ignore[attr-defined]
            raise UsageError(
                f"The optimizer {self.name!r} does not know its variables yet, which gradients in flight belong to.",  # type: ignore[attr-defined]
                "Call optimizer.build(model.trainable_variables), or load the model, before load_in_flight().",
            )
        indices = sorted(in_flight[0][0]) if in_flight else []
        variables = [self._trainable_variables[index] for index in indices]  # type: ignore[attr-defined]
        keys = [self._var_key(variable) for variable in variables]  # type: ignore[attr-defined]
        groups = split(distributed.settings.groups, keys, self._var_key)  # type: ignore[attr-defined]
        buckets = distributed.exchange.wire.buckets(indices, groups, variables)
        distributed.exchange.load(state, buckets, self._weights)

    def forget_accumulated(self) -> None:
        """Drop accumulated gradients and gradients in flight, after ranks joined or left."""
        if self._distributed.exchange is not None:
            self._distributed.exchange.forget()
        if self._distributed.accumulator is not None:
            self._distributed.accumulator.reset()
        if self._distributed.reduce.overlap is not None:
            self._distributed.reduce.overlap.follow(())

    # Methods that Keras and users call.

    @unconverted
    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """Average gradients, then apply them as Keras does."""
        inherited = super().apply  # type: ignore[misc]
        if self._distributed.updating is not None:
            inherited(grads, trainable_variables)
            return
        grads = list(grads)
        variables = self._trainable_variables if trainable_variables is None else trainable_variables  # type: ignore[attr-defined]
        if len(grads) != len(variables):
            inherited(grads, trainable_variables)  # raises, or has nothing to do
            return
        run_update(self, self, grads, list(variables), lambda new: inherited(new, trainable_variables))

    @unconverted
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Average gradients, then apply them as Keras does.

        The last three arguments are Keras 2's; either of the last two disables averaging.
        """
        inherited = super().apply_gradients  # type: ignore[misc]
        pairs = list(grads_and_vars)
        if self._distributed.updating is not None or not pairs:
            return inherited(pairs)
        grads, variables = map(list, zip(*pairs))
        averaged = skip_gradients_aggregation or not experimental_aggregate_gradients
        run_update(self, self, grads, variables, lambda new: inherited(list(zip(new, variables))), averaged)
        return self._iterations  # type: ignore[attr-defined]

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        # Keras calls this once for every update. When it accumulates by itself (gradient_accumulation_steps), it calls
        # it only in the step that updates: the sums are averaged there, and clipped afterwards.
        if self.gradient_accumulation_steps and self._distributed.updating is not None:  # type: ignore[attr-defined]
            grads = reduce(self, grads, self._distributed.updating)
        clipped: list[Any] = super()._clip_gradients(grads)  # type: ignore[misc]
        return clipped

    @property
    def iterations(self) -> Any:
        """Number of backward passes, as for Horovod and LearningRateSchedules. Adam's bias correction needs updates."""
        passes = self._distributed_settings.backward_passes_per_step
        if passes > 1 and self._distributed.updating is not None:
            return keras.ops.floor_divide(self._iterations, passes)  # type: ignore[attr-defined]
        return super().iterations  # type: ignore[misc]

    def _get_current_learning_rate(self) -> Any:
        rate = super()._get_current_learning_rate()  # type: ignore[misc]
        return rate if self._distributed.exchange is None else self._distributed.exchange.around.rate(rate)

    # Keras 2's methods, still used by scripts with their own loop.

    @unconverted
    def _compute_gradients(self, loss: Any, var_list: Sequence[Any], grad_loss: Any = None, tape: Any = None) -> Any:
        variables = list(var_list)
        grads = self._distributed.wire.gradients(loss, variables, grad_loss, tape)
        return list(zip(self._reduced_now(grads, variables), variables))

    @unconverted
    def compute_gradients(self, loss: Any, var_list: Sequence[Any], tape: Any = None) -> Any:
        """Return pairs of averaged gradient and variable, for `apply_gradients`."""
        return self._compute_gradients(loss, var_list, None, tape)

    @unconverted
    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Return averaged gradients of `params`, for `apply_gradients`."""
        inherited = getattr(super(), "get_gradients", None)
        variables = list(params)
        wire = self._distributed.wire
        grads = inherited(loss, variables) if inherited else wire.gradients(loss, variables, None, None)
        return self._reduced_now(list(grads), variables)

    def _reduced_now(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        state = self._distributed
        reduced = accumulate(self, grads, variables)
        state.announce(reduced, {self._var_key(variable) for variable in variables})  # type: ignore[attr-defined]
        return reduced


def _numbered(settings: Settings) -> Settings:
    """Return `settings` with a name unique in this world, so that operations of two optimizers never match."""
    library = loaded(communication().LIBRARY)

    def names(number: int) -> list[str]:
        return [f"optimizer {settings.name} {number}"]

    number = own_number(library, settings.process_set.process_set_id, names)
    return replace(settings, name=f"{settings.name}_{number + 1}") if number else settings


def _update_step_of_two(inherited: Callable[..., Any]) -> Callable[..., Any]:
    def update_step(self: Any, gradient: Any, variable: Any, learning_rate: Any = None) -> Any:
        return inherited(self, gradient, variable)

    return update_step


def _class_for(wrapped: type[Any], settings: Settings) -> type[Any]:
    namespace: dict[str, Any] = {
        "__slots__": ("_distributed_state",),
        "__module__": wrapped.__module__,
        "__qualname__": wrapped.__qualname__,
        "__doc__": wrapped.__doc__,
        "_distributed_settings": settings,
    }
    # Optimizers written for Keras 2 have no learning rate argument there.
    if len(inspect.signature(wrapped.update_step).parameters) == 3:
        namespace["update_step"] = _update_step_of_two(wrapped.update_step)
    parts = (Sharded, Distributed) if settings.sharded else (Distributed,)
    made = type(wrapped.__name__, (*parts, wrapped), namespace)
    _serialize_as(made, wrapped)
    return made


def _serialize_as(made: type[Any], wrapped: type[Any]) -> None:
    """Make files name the wrapped class, so that they load without Horovod."""
    # Keras on PyTorch makes subclasses of its public classes with the same names.
    public = (base for base in wrapped.__mro__ if base.__name__ == wrapped.__name__)
    names = [name for base in public if (name := api_export.get_name_from_symbol(base))]
    if names:
        api_export.REGISTERED_OBJS_TO_NAMES[made] = names[0]
    elif wrapped in object_registration.GLOBAL_CUSTOM_NAMES:
        object_registration.GLOBAL_CUSTOM_NAMES[made] = object_registration.GLOBAL_CUSTOM_NAMES[wrapped]


def find(optimizer: Any) -> Any:
    """Return the wrapped optimizer that `optimizer` is or holds; None if there is none."""
    while optimizer is not None and not isinstance(optimizer, Distributed):
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return optimizer


def distribute(optimizer: Any, settings: Settings) -> Any:
    """Wrap an optimizer so that it averages gradients; of one that holds another (loss scaling), the inner one."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UsageError(
            f"DistributedOptimizer got {type(optimizer).__name__}, which is not an optimizer of Keras "
            f"{keras.__version__}.",
            "Give an instance of keras.optimizers.Optimizer, for example keras.optimizers.Adam().",
        )
    if find(optimizer) is not None:
        raise UsageError(
            f"The optimizer {optimizer.name!r} is wrapped by DistributedOptimizer already.",
            "Wrap it once.",
        )
    from paceline.keras3.patches import install

    install(find)
    if optimizer.built:
        _compile_again(optimizer)
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        optimizer.inner_optimizer = distribute(inner, settings)
        return optimizer
    if settings.sharded:
        check(optimizer, settings)
    made = _class_for(type(optimizer), settings)
    result = object.__new__(made)
    object.__setattr__(result, "__dict__", optimizer.__dict__)
    # Numbered in the order of creation: threads may use them in any order. Before init() there is no world to count in.
    if communication().hvd.is_initialized():
        _ = result._distributed
    return result


def _compile_again(optimizer: Any) -> None:
    """Make models that trained with `optimizer` compile their step again; on TensorFlow the old step would not change.

    Assigning model.optimizer does not notify a model, and a compiled step does not read it.
    """
    for one in gc.get_objects():
        if not issubclass(type(one), keras.Model):
            continue
        held = getattr(one, "optimizer", None)
        if held is not None and (held is optimizer or find(held) is optimizer):
            one.train_function = None
