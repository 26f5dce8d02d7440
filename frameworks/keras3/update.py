"""One update of a wrapped Keras 3 optimizer: its state, and the reduction of gradients before it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras

from paceline import config
from paceline.errors import UsageError
from paceline.keras3.settings import Settings
from paceline.keras3.weighing import SAMPLES, check, combined, is_number
from paceline.variables import PREFIX

_BY_VARIABLE = f"{PREFIX}WEIGHT={SAMPLES}"


def communication() -> Any:
    """Return the communication module of this Keras backend. Raises UsageError for other backends."""
    name = keras.backend.backend()
    if name == "tensorflow":
        from paceline.keras3 import on_tensorflow

        return on_tensorflow
    if name == "torch":
        from paceline.keras3 import on_torch

        return on_torch
    raise UsageError(
        f"Keras runs on the backend {name!r}, which has no connection to Horovod.",
        "Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=torch in the environment before keras is first imported, or "
        'change "backend" in ~/.keras/keras.json.',
    )


def unconverted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Exclude `function` from AutoGraph: no `if` or `for` in it, or in its callees, depends on tensors.

    In a tf.function, TensorFlow would otherwise rewrite it and all its callees for every graph, which takes seconds.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    left: Callable[..., Any] = tf.autograph.experimental.do_not_convert(function)
    return left


class State:
    """State of one wrapped optimizer, in addition to the attributes it shares with the original one."""

    def __init__(self, settings: Settings) -> None:
        wire = communication()
        self.wire = wire
        self.settings = settings
        self.reduce = wire.Reducer(settings)
        self.exchange = self.reduce.exchange  # None: gradients are used in the step they belong to
        self.accumulator = wire.Accumulator(settings) if settings.backward_passes_per_step > 1 else None
        self.local: set[Any] = set()  # keys of variables whose gradients stay on this rank
        self.updating: list[Any] | None = None  # the variables of the update that Keras is doing now
        self.weight: Any = None
        self._number: Any = None  # variable with the weight if that is a number: compiled steps read it
        self.samples: Any = None  # number of samples in the current step of Model.fit
        self.own_batch: Any = None  # False: that step repeats a batch (paceline.keras3.padding); None: no uneven()
        if settings.weight is None and config.settings().weight == SAMPLES:
            self.weigh(SAMPLES, _BY_VARIABLE)
        else:
            self.weigh(settings.weight)
        self.announced: tuple[Any, set[Any], list[weakref.ref[Any]]] | None = None
        # Sharded optimizers: the number of updates, and slots of other ranks by id, when they were collected last.
        self.collected: tuple[int, dict[int, Any]] | None = None

    def weigh(self, weight: Any, origin: str = "") -> bool:
        """Set the weight of coming updates. Returns True if steps compiled before read a different one.

        Raises UsageError for an unusable weight.
        """
        check(weight, self.settings, origin=origin)
        before = self._source
        if is_number(weight):
            if self._number is None:
                self._number = keras.Variable(0.0, trainable=False, dtype="float64", name="weight")
            self._number.assign(float(weight))
        self.weight = weight
        return self._source is not before

    @property
    def _source(self) -> Any:
        """Object from which steps read the weight."""
        return self._number if is_number(self.weight) else self.weight

    def weight_now(self) -> Any:
        """Current weight of this rank's gradients; None: ranks count alike. Raises UsageError if it is not known."""
        weight = self._given_weight()
        if weight is None or self.own_batch is None:
            return weight
        return keras.ops.where(self.own_batch, keras.ops.cast(weight, "float64"), 0.0)

    def _given_weight(self) -> Any:
        if not (isinstance(self.weight, str) and self.weight == SAMPLES):
            return self._source
        if self.samples is None:
            raise UsageError(
                f"The optimizer {self.settings.name!r} has weight={SAMPLES!r}, and gradients came from elsewhere than "
                "the train_step of Keras in Model.fit.",
                "Set optimizer.weight to a variable that holds the number of samples, and assign it in each step; or "
                f"leave {_BY_VARIABLE} out.",
            )
        return self.samples

    @contextmanager
    def update(self, variables: list[Any]) -> Iterator[None]:
        """Context in which `apply` and `apply_gradients` are Keras' own."""
        self.updating = variables
        try:
            yield
        finally:
            self.updating = None

    def announce(self, grads: Iterable[Any], keys: set[Any]) -> None:
        """Record that compute_gradients reduced `grads`; the following apply_gradients must not reduce them again."""
        self.announced = (self.wire.here(), keys, [weakref.ref(grad) for grad in grads if grad is not None])

    @property
    def exchanges(self) -> bool:
        """True if an exchange of Paceline is configured and there are other ranks."""
        return self.exchange is not None and self.wire.takes_part(self.settings.process_set)

    @property
    def averages_passes(self) -> bool:
        """True if the sum of several passes is divided by their number; with weights it is a mean already."""
        return self.accumulator is not None and self.settings.average_aggregated_gradients and self.weight is None

    def take_announced(self, grads: Iterable[Any], keys: set[Any]) -> bool:
        """True if `grads` come from compute_gradients and must not be reduced again."""
        announced, self.announced = self.announced, None
        if announced is None or announced[0] is not self.wire.here() or announced[1] != keys:
            return False
        known = [reference() for reference in announced[2]]
        if all(any(grad is one for one in known) for grad in grads if grad is not None):
            return True
        # Modified in between (clipped, for example), or different gradients. Averaging an average changes nothing, so
        # averaging again is safe. A sum or an accumulation must not be repeated.
        return self.settings.op != self.settings.average or self.accumulator is not None


def overlapping(optimizer: Any, owner: Any) -> AbstractContextManager[Any]:
    """Context of Keras' own train_step, where gradients may be sent before the wrapped `optimizer` gets them.

    It gets them from `owner` as they are only if it is the owner itself, and does not add up or weight them.
    """
    state: State = optimizer._distributed
    overlap = state.reduce.overlap
    sums = state.accumulator is not None or optimizer.gradient_accumulation_steps or state.weight is not None
    if overlap is None or sums or owner is not optimizer or not state.wire.takes_part(state.settings.process_set):
        return nullcontext()
    return overlap.inside(lambda index: state.wire.native(optimizer._trainable_variables[index]))


def reduce(optimizer: Any, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """Average `grads` over the ranks. None stays None; gradients of registered local variables are scaled."""
    state = optimizer._distributed
    keys = [optimizer._var_key(variable) for variable in variables]
    result = list(grads)
    exchanged = []
    for position, (grad, key) in enumerate(zip(grads, keys)):
        if grad is not None and key not in state.local:
            exchanged.append(position)
        elif grad is not None and state.settings.scale_local_gradients:
            result[position] = state.reduce.scale_local(grad)
    known = indices_of(optimizer, keys)
    reduced = state.reduce(
        [grads[position] for position in exchanged],
        [keys[position] for position in exchanged],
        [known[position] for position in exchanged],
        optimizer._var_key,
    )
    for position, grad in zip(exchanged, reduced):
        result[position] = grad
    return result


def indices_of(optimizer: Any, keys: Sequence[Any]) -> list[int]:
    """Indices of variables in the optimizer's list, or in this call before it is built."""
    known = optimizer._trainable_variables_indices
    return [known.get(key, position) for position, key in enumerate(keys)]


def accumulate(optimizer: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
    """Reduce gradients now, or after `backward_passes_per_step` passes; weighted if there is a weight."""
    state: State = optimizer._distributed
    exchanged = [
        grad is not None and optimizer._var_key(variable) not in state.local for grad, variable in zip(grads, variables)
    ]
    return combined(
        state.wire,
        state.reduce,
        state.settings,
        state.weight_now(),
        grads,
        exchanged,
        lambda given: _accumulate(optimizer, given, variables),
    )


def _accumulate(optimizer: Any, grads: list[Any], variables: list[Any]) -> list[Any]:
    state: State = optimizer._distributed
    if state.accumulator is None:
        return reduce(optimizer, grads, variables)
    present = [position for position, grad in enumerate(grads) if grad is not None]
    known = indices_of(optimizer, [optimizer._var_key(variable) for variable in variables])
    chosen = [variables[position] for position in present]

    def reduced(tensors: list[Any]) -> list[Any]:
        found = reduce(optimizer, tensors, chosen)
        return [one / state.settings.backward_passes_per_step for one in found] if state.averages_passes else found

    sums = state.accumulator.add(
        [grads[position] for position in present], [known[position] for position in present], reduced
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
    """Average `grads` as configured for the wrapped `optimizer`, then call `update` with them.

    `owner`: the optimizer whose `build` makes the variables: the optimizer itself or the one that holds it. `averaged`:
    the caller has averaged already.
    """
    state: State = optimizer._distributed
    if not owner.built:
        with keras.name_scope(owner.name, caller=owner):
            owner.build(variables)
        owner.built = True  # TensorFlow: not within a branch of the graph
    # Keras checks this in its own update, which an exchange may skip.
    optimizer._check_variables_are_known(variables)
    keras_accumulates = bool(optimizer.gradient_accumulation_steps)
    weighted = state.weight is not None
    if weighted and state.exchange is not None and owner is not optimizer:
        raise UsageError(
            f"The optimizer {optimizer.name!r} has a weight, an exchange that is not synchronous, and a scaled loss.",
            "Use bfloat16 (of Keras mixed_bfloat16), which needs no loss scaling, or give no weight.",
        )
    others = {
        "a weight": weighted,
        "loss scaling": owner is not optimizer,
        "backward_passes_per_step of the wrapper": state.accumulator is not None,
        "an exchange that is not synchronous": state.exchange is not None,
    }
    if keras_accumulates and any(others.values()):
        raise UsageError(
            f"The optimizer {optimizer.name!r} accumulates gradients by itself "
            f"(gradient_accumulation_steps={optimizer.gradient_accumulation_steps}), together with "
            f"{' and '.join(other for other, present in others.items() if present)}.",
            "Leave gradient_accumulation_steps out and give backward_passes_per_step=, "
            "average_aggregated_gradients=True to DistributedOptimizer: they do the same.",
        )
    if state.exchange is not None and owner is not optimizer:
        state.exchange.scaled_by(owner.dynamic_scale)
    with state.wire.after_checks():
        _update_after_checks(optimizer, grads, variables, update, averaged)


def _update_after_checks(
    optimizer: Any, grads: list[Any], variables: list[Any], update: Callable[[list[Any]], Any], averaged: bool
) -> None:
    state: State = optimizer._distributed
    keys = {optimizer._var_key(variable) for variable in variables}
    announced = state.take_announced(grads, keys)
    if optimizer.gradient_accumulation_steps and not averaged:
        updated = [
            variable
            for grad, variable in zip(grads, variables)
            if grad is not None and not optimizer._overwrite_variable_with_gradient(variable)
        ]
        with state.update(updated):
            update(grads)
        return
    if not (announced or averaged):
        grads = accumulate(optimizer, grads, variables)

    def run() -> None:
        # With an empty list `_clip_gradients` averages nothing.
        with state.update([]):
            update(grads)

    if state.exchanges and averaged and not announced and state.settings.sharded:
        raise UsageError(
            f"The optimizer {optimizer.name!r}, whose update ranks share, was given gradients that are averaged.",
            "Leave the averaging to the optimizer: give neither skip_gradients_aggregation=True nor "
            'experimental_aggregate_gradients=False; or use exchange="sync".',
        )
    if state.exchanges and (announced or not averaged):
        known = indices_of(optimizer, [optimizer._var_key(variable) for variable in variables])
        run = _where_answered(optimizer, run, dict(zip(known, variables)), grads)
    if state.accumulator is None or (averaged and not announced):
        run()
    else:
        state.accumulator.when_due(run, lambda: optimizer._iterations.assign_add(1))


def _where_answered(
    optimizer: Any, update: Callable[[], None], variables: dict[int, Any], grads: Sequence[Any]
) -> Callable[[], None]:
    """`update`, skipped if the exchange has no answer: then nothing may change, not even a counter."""
    state: State = optimizer._distributed
    state.exchange.wire.optimizer = weakref.ref(optimizer)

    def leave_out() -> None:
        # Earlier passes incremented the counter one by one.
        if state.settings.backward_passes_per_step > 1:
            optimizer._iterations.assign_sub(state.settings.backward_passes_per_step - 1)

    def run() -> None:
        if state.settings.sharded:
            state.exchange.wire.awaited = [grad for grad in grads if grad is not None]
        state.exchange.update(lambda: variables, update, leave_out)
        if state.settings.sharded:
            state.exchange.wire.awaited = ()

    return run
