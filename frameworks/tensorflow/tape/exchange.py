"""Non-synchronous exchanges of tapes.

Every step makes a new tape, so its exchange is kept here. The tape's name and sources identify the exchange. Tapes of
twin models thus have one name each without any setting. Differentiating the same sources twice, with one tape or in
one graph, makes a second exchange. Steps unrolled in one graph, each followed by an update of Keras, share one.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from paceline.codecs.choice import Choice
from paceline.codecs.encoding import Encoding
from paceline.errors import UserError
from paceline.exchange.base import Exchange
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.ending import at_end
from paceline.exchange.in_flight_state import with_residuals, without_residuals
from paceline.exchange.sync_settings import Sync
from paceline.keras3 import on_tensorflow as wire
from paceline.keras3.tensorflow_wire import TensorFlowWire
from paceline.log import log
from paceline.native.library import loaded
from paceline.native.world import process
from paceline.registry.making import make_watched
from paceline.tensorflow.horovod import horovod_tensorflow
from paceline.tensorflow.tape.updates import applied_in, applier

TAPE_NAME = "DistributedGradientTape"


class _Kept:
    """Exchange of the tapes with one name, process set, settings and list of sources."""

    def __init__(self, key: tuple[str, int], exchange: Exchange, sources: Sequence[Any]) -> None:
        self.key = key
        self.exchange = exchange
        self.take(sources)

    def take(self, sources: Sequence[Any]) -> None:
        """Use `sources` from now on; the exchange is dropped when one of their variables is."""
        gone = weakref.WeakMethod(self._gone)

        def lost(_: Any) -> None:
            method = gone()
            if method is not None:
                method()

        # Watched tensors differ in every step: only their number is compared.
        self._sources = [weakref.ref(one, lost) if isinstance(one, tf.Variable) else None for one in sources]

    def drain(self) -> int:
        """Apply the remaining updates when the ranks end, with the Keras optimizer that applied the ones before."""
        updates = self.exchange.drained_means(self.weights)
        optimizer = applier(self.exchange)
        if updates and optimizer is None:
            log(
                f"Rank {horovod_tensorflow.rank()}: {len(updates)} updates of the tape {self.key[0]!r} are left, which "
                "no optimizer of Keras applies. Before the end call hvd.drain_tape(optimizer, variables) on all ranks."
            )
            return 0
        variables = self._variables()
        for update in updates:
            apply_results(optimizer, update, variables)
        return len(updates)

    def weights(self) -> dict[int, Any]:
        """Variables among the sources, by index."""
        return {index: one for index, one in enumerate(self._variables()) if one is not None}

    def _gone(self) -> None:
        if self in _tapes().kept:
            _tapes().kept.remove(self)

    def _variables(self) -> list[Any]:
        return [None if one is None else one() for one in self._sources]

    def has(self, sources: Sequence[Any]) -> bool:
        """Return True if `sources` are its sources, in this order."""
        mine = self._variables()
        theirs = [one if isinstance(one, tf.Variable) else None for one in sources]
        return len(mine) == len(theirs) and all(one is other for one, other in zip(mine, theirs, strict=True))

    def shares(self, sources: Sequence[Any]) -> bool:
        """Return True if it shares a variable with `sources`."""
        return any(mine is not None and mine is one for mine in self._variables() for one in sources)


class _Tapes:
    """State of all tapes of a process; keys are a name and a process set."""

    def __init__(self) -> None:
        self.kept: list[_Kept] = []  # in the order of first use, and with it of names
        self.to_load: dict[tuple[str, int], list[tuple[dict[str, Any], Sequence[Any] | None]]] = {}
        # Synchronous tapes, whose operations have the tape's name: by codec and collective, the last used one at the
        # end.
        self.encodings: dict[tuple[str, int], dict[Choice, Encoding]] = {}
        # Exchanges that are part of a graph.
        self.in_graphs: weakref.WeakKeyDictionary[Any, list[Exchange]] = weakref.WeakKeyDictionary()


def _tapes() -> _Tapes:
    return process(loaded("tensorflow")).of(_Tapes)


def check(chosen: ExchangeSettings) -> None:
    """Raise UserError for an exchange that needs the optimizer, which a tape does not know."""
    refused = chosen.needs_optimizer
    if refused is not None:
        raise UserError(*refused)


def encoding_for(name: str, process_set: Any, choice: Choice, chosen: ExchangeSettings) -> Encoding:
    """Codec and collective of a tape. Synchronous tapes of a name share one; an exchange keeps its first tape's."""
    made = Encoding(loaded("tensorflow"), process_set, choice)
    if not chosen.synchronous:
        return made
    key = _key(name, process_set)
    encodings, to_load = _tapes().encodings.setdefault(key, {}), _tapes().to_load
    known = encodings[choice] = encodings.pop(choice, made)
    for waiting in list(to_load.get(key, [])):
        rest, residuals = without_residuals(waiting[0])
        if rest is None:
            to_load[key].remove(waiting)
            known.load(residuals)
    return known


def _last_encoding(key: tuple[str, int]) -> Encoding | None:
    return next(reversed(_tapes().encodings.get(key, {}).values()), None)


def exchange_for(chosen: ExchangeSettings, sources: Sequence[Any], used: list[Exchange]) -> Callable[[Any], Exchange]:
    """Return the factory that `Settings.exchange` holds for gradients of `sources` (tf.Variables and tensors).

    `used`: exchanges of earlier calls of this tape; the found one is appended. Raises UserError if only some of
    `sources` have gradients in flight.
    """

    def find(settings: Any) -> Exchange:
        here, tapes = wire.here(), _tapes()
        taken = used if here is None else tapes.in_graphs.setdefault(here, [])
        key = _key(settings.name, settings.process_set)

        def free(exchange: Exchange) -> bool:
            # After an update the next unrolled step begins.
            return exchange not in taken or (here is not None and applied_in(here, exchange))

        known = [kept for kept in tapes.kept if kept.key == key and free(kept.exchange)]
        found = next((kept for kept in known if kept.has(sources)), None)
        if found is None:
            found = next((kept for kept in known if kept.shares(sources)), None)
            if found is not None:
                _pass_on(found, sources)
        wanted = chosen, settings.encoding.choice
        if found is not None and (found.exchange.settings, found.exchange.wire.encoding.choice) != wanted:
            found.exchange.forget()
            tapes.kept.remove(found)
            found = None
        if found is None:
            made = make_watched(chosen, TensorFlowWire, settings)
            found = _Kept(key, made, sources)
            made.loading = _taken_to_load(key, found)
            tapes.kept.append(found)
            at_end(made, found.drain, found.weights, "hvd.drain_tape(optimizer, variables)")
        taken.append(found.exchange)
        return found.exchange

    return find


def _pass_on(kept: _Kept, sources: Sequence[Any]) -> None:
    if not kept.exchange.at_rest:
        raise UserError(
            f"Rank {horovod_tensorflow.rank()}: a tape named {kept.key[0]!r} got {len(sources)} sources; expected the "
            "sources whose gradients are in flight, found some of them among others.",
            "Call hvd.drain_tape() with the sources of before on all ranks first, or give tapes with different lists "
            "of sources different names (name=).",
        )
    kept.take(sources)


def drain_tape(optimizer: Any, variables: Sequence[Any], name: str = TAPE_NAME, process_set: Any = None) -> int:
    """Apply the updates whose gradients are in flight, with a Keras optimizer.

    Call it on all ranks after the same update. The next K - 1 updates are skipped, as at the beginning.

    Args:
        optimizer: the Keras optimizer that applies the updates.
        variables: the sources of the tape, in the same order.
        name: name of the tape.
        process_set: process set of the tape; None: all ranks.

    Returns:
        The number of updates.
    """
    sources = list(map(wire.native, variables))
    drained = [kept.exchange.drained_means(kept.weights) for kept in _chosen(_key(name, process_set), sources)]
    count = 0
    # The oldest update of each tape before the next of any.
    for updates in itertools.zip_longest(*drained):
        for update in updates:
            if update is not None:
                apply_results(optimizer, update, variables)
                count += 1
    return count


def apply_results(optimizer: Any, update: tuple[Mapping[Any, Any], float], variables: Sequence[Any]) -> None:
    """Apply one drained update: results by the index of the source, and the loss scale of their computation."""
    results, scale = update
    chosen = [variables[int(index)] for index in results]
    grads = wire.tensors_like(list(results.values()), chosen)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        # The optimizer divides by its current scale.
        grads = [grad * tf.cast(optimizer.dynamic_scale / scale, grad.dtype) for grad in grads]
    optimizer.apply(grads, chosen)


def tape_in_flight(
    name: str = TAPE_NAME, process_set: Any = None, variables: Sequence[Any] | None = None
) -> dict[str, Any] | None:
    """Return the gradients in flight of the tapes of this name as NumPy arrays, for a checkpoint; None without any.

    With a codec it includes the residuals of error feedback, also of synchronous tapes. `variables`: sources of the
    tape, needed if tapes of one name have several lists of sources; otherwise UserError.
    """
    kept = _one(name, process_set, variables)
    if kept is not None:
        return kept.exchange.state()
    encoding = _last_encoding(_key(name, process_set))
    return None if encoding is None else with_residuals(None, encoding.state(), Sync.tag)


def load_tape_in_flight(
    state: dict[str, Any] | None,
    name: str = TAPE_NAME,
    process_set: Any = None,
    variables: Sequence[Any] | None = None,
) -> None:
    """Continue from the result of `tape_in_flight` at the next step.

    Call it on all ranks before the step is compiled.
    """
    kept = _one(name, process_set, variables)
    if kept is not None:
        kept.exchange.forget()
        kept.exchange.loading = state
        return
    encoding = _last_encoding(_key(name, process_set))
    rest, residuals = (None, None) if state is None else without_residuals(state)
    if encoding is not None:
        encoding.load(residuals if rest is None else None)
    if state is not None and (rest is not None or encoding is None):
        sources = None if variables is None else list(map(wire.native, variables))
        _tapes().to_load.setdefault(_key(name, process_set), []).append((state, sources))


def _taken_to_load(key: tuple[str, int], kept: _Kept) -> dict[str, Any] | None:
    waiting = _tapes().to_load.get(key, [])
    for number, (state, sources) in enumerate(waiting):
        if sources is None or kept.has(sources):
            del waiting[number]
            return state
    return None


def _chosen(key: tuple[str, int], sources: Sequence[Any] | None) -> list[_Kept]:
    """Tapes with this name and process set, and with these sources (None: any)."""
    known = [kept for kept in _tapes().kept if kept.key == key]
    return [kept for kept in known if sources is None or kept.has(sources) or kept.shares(sources)]


def _one(name: str, process_set: Any, variables: Sequence[Any] | None) -> _Kept | None:
    sources = None if variables is None else list(map(wire.native, variables))
    known = _chosen(_key(name, process_set), sources)
    if len(known) > 1:
        raise UserError(
            f"Rank {horovod_tensorflow.rank()}: tapes named {name!r} have {len(known)} lists of gradients in flight.",
            "Say whose by variables=, the sources of the tape, or give the tapes different names (name=).",
        )
    return known[0] if known else None


def _key(name: str, process_set: Any) -> tuple[str, int]:
    return name, (horovod_tensorflow.global_process_set if process_set is None else process_set).process_set_id
