"""Make a Keras 3 optimizer average its gradients over all ranks.

The wrapped optimizer is not copied: the result is a second face of the same object. It shares the attributes of the
one that was given (variables, schedule, everything), so neither can drift from the other, and its class is a subclass
of the given one's, under the same name, that averages gradients before the inherited `apply` sees them. Everything
after that (unscaling, clipping, weight decay, the update, moving averages, counting) is Keras' own.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
from keras.src import api_export
from keras.src.saving import object_registration

from .keras3_settings import Settings, split
from .user_error import UserError


def communication() -> Any:
    """The module through which this Keras talks to other ranks. Raises UserError for other backends."""
    name = keras.backend.backend()
    if name == "tensorflow":
        from . import keras3_tensorflow

        return keras3_tensorflow
    if name == "torch":
        from . import keras3_torch

        return keras3_torch
    raise UserError(
        f"Keras runs on the backend {name!r}, which has no connection to Horovod.",
        "Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=torch in the environment before keras is first imported, or "
        'change "backend" in ~/.keras/keras.json.',
    )


class _State:
    """What one wrapped optimizer keeps beside the attributes that it shares with the one that was given."""

    def __init__(self, settings: Settings) -> None:
        wire = communication()
        self.wire = wire
        self.settings = settings
        self.reduce = wire.Reducer(settings)
        self.pipeline = self.reduce.pipeline  # None: gradients are used in the step they belong to
        self.accumulator = wire.Accumulator(settings) if settings.backward_passes_per_step > 1 else None
        self.local: set[Any] = set()  # keys of variables whose gradients stay on this rank
        self.updating: list[Any] | None = None  # the variables of the update that Keras is doing now
        self.announced: tuple[Any, set[Any], list[weakref.ref[Any]]] | None = None

    @contextmanager
    def update(self, variables: list[Any]) -> Iterator[None]:
        """Inside, `apply` and `apply_gradients` are Keras' own."""
        self.updating = variables
        try:
            yield
        finally:
            self.updating = None

    def announce(self, grads: Iterable[Any], keys: set[Any]) -> None:
        """compute_gradients reduced `grads`; the apply_gradients that follows must not do it again."""
        self.announced = (self.wire.here(), keys, [weakref.ref(grad) for grad in grads if grad is not None])

    @property
    def travels(self) -> bool:
        """Whether a pipelined exchange is in use: there is one, and there are other ranks."""
        return self.pipeline is not None and self.wire.takes_part(self.settings.process_set)

    @property
    def averages_passes(self) -> bool:
        """Whether the sum of several passes is divided by their number."""
        return self.accumulator is not None and self.settings.average_aggregated_gradients

    def take_announced(self, grads: Iterable[Any], keys: set[Any]) -> bool:
        """Whether `grads` come from compute_gradients and must not be reduced again."""
        announced, self.announced = self.announced, None
        if announced is None or announced[0] is not self.wire.here() or announced[1] != keys:
            return False
        known = [reference() for reference in announced[2]]
        if all(any(grad is one for one in known) for grad in grads if grad is not None):
            return True
        # Changed in between (clipped, say) or others altogether. An average of averages changes nothing, so it is
        # safe to average what may be averaged already; a sum or an accumulation must not be made twice.
        return self.settings.op != self.settings.average or self.accumulator is not None


class Distributed:
    """The part of the made class that is ours; `super()` is the class of the wrapped optimizer."""

    _distributed_settings: Settings
    # Outside of the instance's dictionary, which is shared with the optimizer that was given.
    __slots__ = ()

    @property
    def _distributed(self) -> _State:
        try:
            state: _State = object.__getattribute__(self, "_distributed_state")
        except AttributeError:
            state = _State(self._distributed_settings)
            object.__setattr__(self, "_distributed_state", state)
        return state

    @property
    def _agg_helper(self) -> Any:
        """Horovod's name for what adds up gradients; None unless backward_passes_per_step > 1."""
        return self._distributed.accumulator

    def __reduce__(self) -> Any:
        # A copy or a pickle is the wrapped optimizer's, for processes without Horovod.
        plan: Any = super().__reduce__()
        rebuild, *rest = plan
        lineage = type(self).__mro__
        return (getattr(lineage[lineage.index(Distributed) + 1], rebuild.__name__), *rest)

    def register_local_var(self, var: Any) -> None:
        """Leave the gradients of `var` on this rank: they are not averaged."""
        self._distributed.local.add(self._var_key(var))  # type: ignore[attr-defined]

    def drain(self) -> int:
        """Make the updates whose gradients are in flight; returns how many. Nothing to do for a synchronous exchange.

        All ranks must call it after the same update; not in a graph. The next K - 1 updates will be left out, as at the
        beginning. Gradients that overflowed under loss scaling make no update.
        """
        state = self._distributed
        updates = 0
        for results, scale in state.pipeline.drain() if state.pipeline is not None else ():
            variables = [self._trainable_variables[place] for place in results]  # type: ignore[attr-defined]
            grads = state.wire.tensors_like(list(results.values()), variables)
            divisor = scale * (state.settings.backward_passes_per_step if state.averages_passes else 1)
            if divisor != 1:
                grads = [grad / divisor for grad in grads]
            if scale != 1 and not state.wire.finite(grads):
                continue
            with state.update([]):
                super().apply(grads, variables)  # type: ignore[misc]
            self._iterations.assign_add(state.settings.backward_passes_per_step - 1)  # type: ignore[attr-defined]
            updates += 1
        return updates

    def in_flight(self) -> dict[str, Any] | None:
        """The gradients in flight, as NumPy arrays, to be saved beside the model; None if there are none.

        Asks no other rank and changes nothing; every rank has the same.
        """
        pipeline = self._distributed.pipeline
        return None if pipeline is None else pipeline.state()

    def load_in_flight(self, state: dict[str, Any] | None) -> None:
        """Go on with gradients in flight that `in_flight` returned; all ranks with the same. Not in a graph."""
        distributed = self._distributed
        if distributed.pipeline is None:
            if state is not None and state["in_flight"]:
                raise UserError(
                    "Gradients in flight were given to an optimizer with a synchronous exchange.",
                    "Use the exchange that the state was saved with, or drain() before saving.",
                )
            return
        if state is None:
            distributed.pipeline.forget()
            return
        in_flight = state["in_flight"]
        if not self.built:  # type: ignore[attr-defined]
            raise UserError(
                f"The optimizer {self.name!r} does not know its variables yet, which gradients in flight belong to.",  # type: ignore[attr-defined]
                "Call optimizer.build(model.trainable_variables), or load the model, before load_in_flight().",
            )
        places = sorted(in_flight[0][0]) if in_flight else []
        keys = [self._var_key(self._trainable_variables[place]) for place in places]  # type: ignore[attr-defined]
        distributed.pipeline.load(state, split(distributed.settings.groups, keys, self._var_key))  # type: ignore[attr-defined]

    def forget_accumulated(self) -> None:
        """Drop gradients that wait for further backward passes or are in flight (after ranks came or went)."""
        if self._distributed.pipeline is not None:
            self._distributed.pipeline.forget()
        if self._distributed.accumulator is not None:
            self._distributed.accumulator.reset()

    # What Keras and users call.

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[Any] | None = None) -> None:
        """As Keras', after averaging."""
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

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """As Keras', after averaging. The last three are Keras 2's; either of the last two leaves averaging out."""
        inherited = super().apply_gradients  # type: ignore[misc]
        pairs = list(grads_and_vars)
        if self._distributed.updating is not None or not pairs:
            return inherited(pairs)
        grads, variables = map(list, zip(*pairs))
        averaged = skip_gradients_aggregation or not experimental_aggregate_gradients
        run_update(self, self, grads, variables, lambda new: inherited(list(zip(new, variables))), averaged)
        return self._iterations  # type: ignore[attr-defined]

    def _clip_gradients(self, grads: list[Any]) -> list[Any]:
        # Keras calls this once for every update and, when it accumulates by itself (gradient_accumulation_steps),
        # only in the step that updates: there the sums are averaged, and clipped afterwards.
        if self.gradient_accumulation_steps and self._distributed.updating is not None:  # type: ignore[attr-defined]
            grads = reduce(self, grads, self._distributed.updating)
        clipped: list[Any] = super()._clip_gradients(grads)  # type: ignore[misc]
        return clipped

    @property
    def iterations(self) -> Any:
        """Counts backward passes, as Horovod and LearningRateSchedules do. Adam's bias correction needs updates."""
        passes = self._distributed_settings.backward_passes_per_step
        if passes > 1 and self._distributed.updating is not None:
            return keras.ops.floor_divide(self._iterations, passes)  # type: ignore[attr-defined]
        return super().iterations  # type: ignore[misc]

    # Keras 2's way, still used by scripts with a loop of their own.

    def _compute_gradients(self, loss: Any, var_list: Sequence[Any], grad_loss: Any = None, tape: Any = None) -> Any:
        variables = list(var_list)
        grads = self._distributed.wire.gradients(loss, variables, grad_loss, tape)
        return list(zip(self._reduced_now(grads, variables), variables))

    def compute_gradients(self, loss: Any, var_list: Sequence[Any], tape: Any = None) -> Any:
        """Pairs of averaged gradient and variable, for `apply_gradients`."""
        return self._compute_gradients(loss, var_list, None, tape)

    def get_gradients(self, loss: Any, params: Sequence[Any]) -> list[Any]:
        """Averaged gradients of `params`, for `apply_gradients`."""
        inherited = getattr(super(), "get_gradients", None)
        variables = list(params)
        wire = self._distributed.wire
        grads = inherited(loss, variables) if inherited else wire.gradients(loss, variables, None, None)
        return self._reduced_now(list(grads), variables)

    def _reduced_now(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        state = self._distributed
        reduced = _accumulate(self, grads, variables)
        state.announce(reduced, {self._var_key(variable) for variable in variables})  # type: ignore[attr-defined]
        return reduced


def reduce(optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """`grads` of `variables`, averaged over the ranks; None stays None, registered local variables' are scaled."""
    state = optimizer._distributed
    keys = [optimizer._var_key(variable) for variable in variables]
    result = list(grads)
    travelling = []
    for position, (grad, key) in enumerate(zip(grads, keys)):
        if grad is not None and key not in state.local:
            travelling.append(position)
        elif grad is not None and state.settings.scale_local_gradients:
            result[position] = state.reduce.scale_local(grad)
    places = _places(optimizer, keys)
    reduced = state.reduce(
        [grads[position] for position in travelling],
        [keys[position] for position in travelling],
        [places[position] for position in travelling],
        optimizer._var_key,
    )
    for position, grad in zip(travelling, reduced):
        result[position] = grad
    return result


def _places(optimizer: Any, keys: Sequence[Any]) -> list[int]:
    """Numbers of variables: their places in the optimizer's list, or in this call before it is built."""
    known = optimizer._trainable_variables_indices
    return [known.get(key, position) for position, key in enumerate(keys)]


def _accumulate(optimizer: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
    """Reduce now, or once `backward_passes_per_step` gradients were added up."""
    state = optimizer._distributed
    if state.accumulator is None:
        return reduce(optimizer, grads, variables)
    present = [position for position, grad in enumerate(grads) if grad is not None]
    places = _places(optimizer, [optimizer._var_key(variable) for variable in variables])
    chosen = [variables[position] for position in present]
    sums = state.accumulator.add(
        [grads[position] for position in present],
        [places[position] for position in present],
        lambda tensors: reduce(optimizer, tensors, chosen),
    )
    result = list(grads)
    for position, total in zip(present, sums):
        result[position] = total
    return result


def run_update(
    optimizer: Any,
    owner: Any,
    grads: list[Any],
    variables: list[Any],
    update: Callable[[list[Any]], Any],
    averaged: bool = False,
) -> None:
    """Average `grads` as the wrapped `optimizer` is set to, then call `update` with them.

    `owner`: whose `build` makes the optimizer's variables; the optimizer itself or one that holds it.
    `averaged`: the caller has averaged.
    """
    state: _State = optimizer._distributed
    if not owner.built:
        with keras.name_scope(owner.name, caller=owner):
            owner.build(variables)
        owner.built = True  # TensorFlow: not within a branch of the graph
    keras_accumulates = bool(optimizer.gradient_accumulation_steps)
    if keras_accumulates and (owner is not optimizer or state.accumulator is not None):
        raise UserError(
            f"The optimizer {optimizer.name!r} accumulates gradients by itself "
            f"(gradient_accumulation_steps={optimizer.gradient_accumulation_steps}), together with "
            + ("loss scaling." if owner is not optimizer else "backward_passes_per_step of the wrapper."),
            "Leave gradient_accumulation_steps out and give backward_passes_per_step=, "
            "average_aggregated_gradients=True to DistributedOptimizer: they do the same.",
        )
    if keras_accumulates and state.pipeline is not None:
        raise UserError(
            f"The optimizer {optimizer.name!r} accumulates gradients by itself "
            f"(gradient_accumulation_steps={optimizer.gradient_accumulation_steps}), with a pipelined exchange.",
            "Leave gradient_accumulation_steps out and give backward_passes_per_step=, "
            "average_aggregated_gradients=True to DistributedOptimizer: they do the same.",
        )
    if state.pipeline is not None and owner is not optimizer:
        state.pipeline.scale = owner.dynamic_scale
    keys = {optimizer._var_key(variable) for variable in variables}
    announced = state.take_announced(grads, keys)
    if keras_accumulates and not averaged:
        updated = [
            variable
            for grad, variable in zip(grads, variables)
            if grad is not None and not optimizer._overwrite_variable_with_gradient(variable)
        ]
        with state.update(updated):
            update(grads)
        return
    if not (announced or averaged):
        grads = _accumulate(optimizer, grads, variables)

    def run() -> None:
        # An empty list: `_clip_gradients` has nothing left to average.
        with state.update([]):
            update(grads)

    if state.travels and (announced or not averaged):
        run = _where_answered(optimizer, run)
    if state.accumulator is None or (averaged and not announced):
        run()
    else:
        state.accumulator.when_due(run, lambda: optimizer._iterations.assign_add(1))


def _where_answered(optimizer: Any, update: Callable[[], None]) -> Callable[[], None]:
    """`update`, left out where a pipelined exchange has no answer: nothing may move then, not even a count."""
    state: _State = optimizer._distributed

    def leave_out() -> None:
        # The passes before were counted one by one.
        if state.settings.backward_passes_per_step > 1:
            optimizer._iterations.assign_sub(state.settings.backward_passes_per_step - 1)

    return lambda: state.pipeline.when_answered(update, leave_out)


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
    # Optimizers written for Keras 2 take no learning rate there.
    if len(inspect.signature(wrapped.update_step).parameters) == 3:
        namespace["update_step"] = _update_step_of_two(wrapped.update_step)
    made = type(wrapped.__name__, (Distributed, wrapped), namespace)
    _serialize_as(made, wrapped)
    return made


def _serialize_as(made: type[Any], wrapped: type[Any]) -> None:
    """Have files name the wrapped class, so that they load where there is no Horovod."""
    # Keras on PyTorch makes subclasses of its public classes, under the same names.
    public = (base for base in wrapped.__mro__ if base.__name__ == wrapped.__name__)
    names = [name for base in public if (name := api_export.get_name_from_symbol(base))]
    if names:
        api_export.REGISTERED_OBJS_TO_NAMES[made] = names[0]
    elif wrapped in object_registration.GLOBAL_CUSTOM_NAMES:
        object_registration.GLOBAL_CUSTOM_NAMES[made] = object_registration.GLOBAL_CUSTOM_NAMES[wrapped]


def find(optimizer: Any) -> Any:
    """The wrapped optimizer that `optimizer` is or holds; None if there is none."""
    while optimizer is not None and not isinstance(optimizer, Distributed):
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return optimizer


def distribute(optimizer: Any, settings: Settings) -> Any:
    """`optimizer` as one that averages gradients. An optimizer that holds another (loss scaling) keeps its place."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise UserError(
            f"DistributedOptimizer got {type(optimizer).__name__}, which is no optimizer of Keras {keras.__version__}.",
            "Give an instance of keras.optimizers.Optimizer, for example keras.optimizers.Adam().",
        )
    if find(optimizer) is not None:
        raise UserError(
            f"The optimizer {optimizer.name!r} is wrapped by DistributedOptimizer already.",
            "Wrap it once.",
        )
    from .keras3_patches import install

    install()
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        optimizer.inner_optimizer = distribute(inner, settings)
        return optimizer
    made = _class_for(type(optimizer), settings)
    result = object.__new__(made)
    object.__setattr__(result, "__dict__", optimizer.__dict__)
    return result
