"""Exchange of one optimizer's gradients: started as they appear, stored when all results have arrived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from paceline.exchange.base import Exchange
from paceline.exchange.weighing import without_work
from paceline.exchange.wire import Answer, Weights
from paceline.native.library import loaded
from paceline.native.world import world
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.agreement import agree, look
from paceline.torch.optimizer.bucket import Bucket, Gradient, listed, separate
from paceline.torch.optimizer.buckets import Buckets, digest
from paceline.torch.optimizer.claims import claim, live
from paceline.torch.optimizer.hooks import lent
from paceline.torch.optimizer.in_flight import load, saved
from paceline.torch.optimizer.passes import Passes
from paceline.torch.optimizer.weighing import RankWeight
from paceline.torch.optimizer.wire import named
from paceline.torch.split.arriving import check_read


class Reduction:
    """Watches the parameters of an optimizer and exchanges their gradients with the other ranks.

    The exchange of a gradient starts in the backward pass, right after its last accumulation; a bucket starts as a
    whole. `finish` starts the remaining ones, in the order of the parameters, waits, and stores the results in
    `parameter.grad`. Without an `exchange` (one rank) passes are counted and nothing is sent.

    Public attributes: buckets; passes; finished, which is true from `finish` until a new gradient appears or `begin`.
    """

    def __init__(self, buckets: Buckets, exchange: Exchange | None, passes: int, find_unused: bool = False) -> None:
        """`passes`: backward passes per update. `find_unused`: ranks check in every update which gradients exist."""
        self.passes = Passes(passes)
        self.finished = False
        self.buckets = buckets
        self._exchange = exchange
        self._find_unused = find_unused
        self._seen: list[Gradient] = []  # gradients that appeared since the last update
        self._started: dict[Bucket, Answer] = {}
        self._stored: set[Gradient] = set()  # gradients exchanged before parameters were replaced
        self._library = loaded("torch")
        self._world = world(self._library)
        self._handles: object = None  # Horovod's table of operations when the last one was started
        self._watched: list[Gradient] = []  # Buckets.all at the last check
        self._lock = threading.Lock()  # one thread per device runs hooks
        self._clip: Callable[[], object] | None = None  # clipping to be done once gradients are combined
        self._unscaled = False  # True if a GradScaler has read the gradients of this update
        self.weight = RankWeight(exchange)
        # If gradients are not sent, each optimizer uses its own gradients.
        self._exchanges = exchange is not None and exchange.settings.exchanges_gradients
        if self._exchanges:
            live.add(self)

    @property
    def wire(self) -> Any:
        """The wire of the exchange; only where there is one."""
        assert self._exchange is not None
        return self._exchange.wire

    @property
    def sharded(self) -> bool:
        """True if each combined gradient is on its owner only."""
        return self._exchange is not None and self._exchange.settings.sharded and not self._exchange.shared

    @property
    def pending(self) -> bool:
        """True if gradients have appeared whose exchange is not complete."""
        return self._exchange is not None and bool(self._seen)

    def watch_all(self) -> None:
        """Watch every parameter of the optimizer that is not watched yet, and name new ones.

        Raises UsageError if parameters were replaced while gradients are in flight between updates.
        """
        if self.buckets.stale:
            if self._exchange is not None and self.buckets.replaced(self._exchange.at_rest, self.pending):
                # Gradients of the new ones are sent under the names of the old ones.
                with torch.no_grad():
                    for bucket, answer in self._started.items():
                        bucket.store(self._answered(bucket, answer), self._exchange.lag, self._exchange.divides)
                        self._stored.update(bucket.gradients)
                self._started.clear()
                self._exchange.around.forget()
            replaced = self.buckets.update()
            if self._exchange is not None:
                self._exchange.wire.encoding.drop(replaced)
        # With one rank and one pass per update hooks are useless, and would only cost time.
        if self._watched is self.buckets.all or (self._exchange is None and self.passes.per_update == 1):
            return
        for gone in set(self._watched).difference(self.buckets.all):
            gone.unwatch()
            gone.last_bucket = ()
            if gone in self._seen:
                self._seen.remove(gone)
        self._watched = self.buckets.all
        for gradient in self._watched:
            if not gradient.watched and gradient.parameter.is_leaf and gradient.parameter.is_floating_point():
                gradient.watch(self)

    # --- in the backward pass -------------------------------------------------------------------------------------

    def arriving(self, gradient: Gradient) -> float | None:
        """Check a gradient before it is added to `parameter.grad`, so that refusing a pass changes no gradient.

        Returns the factor to multiply the gradient by, or None: used if gradients of several passes are accumulated.
        """
        with self._lock:
            self.forget_if_ranks_changed()
            if self.finished:
                self.restart()
            check_read(gradient.parameter, gradient.name)
            count = gradient.count + 1
            if count == 1:
                gradient.fresh = gradient.parameter.grad is None
                self._clip = None
                if self._exchanges and not gradient.owned:
                    claim(gradient, self)
            if count > self.passes.per_update:
                raise UsageError(
                    f"The gradient of {gradient.name!r} was computed {count} times before step() or "
                    f"synchronize(); backward_passes_per_step={self.passes.per_update}.",
                    "Call step() after every backward_passes_per_step backward passes, or raise "
                    "backward_passes_per_step to accumulate gradients of several passes.",
                )
            return self.weight.of_pass(count, self.passes.per_update > 1)

    def arrived(self, gradient: Gradient, passed: Tensor | None) -> None:
        """Count `passed`, which was added to `parameter.grad` after `arriving`, and start its bucket if complete."""
        grad = gradient.parameter.grad
        with self._lock:
            last = gradient.count + 1 == self.passes.per_update
            if grad is not None:
                if grad.requires_grad:
                    raise UsageError(
                        f"The gradient of {gradient.name!r} carries a graph of its own (create_graph=True).",
                        "Compute gradients of gradients with torch.autograd.grad and call backward() without "
                        "create_graph.",
                    )
                # A flat bucket copies it.
                copied = last and self.buckets.of[gradient].flat
                if self._exchange is not None and not copied and lent(grad, passed):
                    gradient.parameter.grad = grad.detach().clone()  # results are written there
            if not gradient.count:
                self._seen.append(gradient)
            gradient.count += 1
            self.passes.saw_gradient(gradient.count)
            if self._exchange is not None and last:
                self._start_if_complete(gradient)

    def _start_if_complete(self, gradient: Gradient) -> None:
        bucket = self.buckets.of[gradient]
        bucket.complete += 1
        if bucket.complete == 1:
            bucket.awaited = sum(other.active for other in bucket.gradients)
        if bucket.complete < bucket.awaited:
            return
        if gradient.sparse_dims is None and not bucket.always_dense:
            grad = gradient.parameter.grad
            # `finish` first exchanges layouts with the other ranks, and forms flat buckets.
            if gradient.small or (grad is not None and grad.is_sparse):
                return
        if not torch.is_grad_enabled():
            self._start(bucket.active())
            return
        with torch.no_grad():
            self._start(bucket.active())

    def _start(self, bucket: Bucket) -> None:
        assert self._exchange is not None
        for gradient in bucket.gradients:
            before = gradient.last_bucket
            if before is bucket.names:
                continue
            if before and before != bucket.names and self._exchange.filled:
                raise UsageError(
                    f"Rank {horovod.rank()}: {gradient.name!r} is in another group than in the update that is "
                    f"in flight; expected {listed(before)}, found {listed(bucket.names)}.",
                    "Call drain() on all ranks before a member of a group of gradients is frozen or unfrozen.",
                )
            gradient.last_bucket = bucket.names
        self._handles = horovod.mpi_ops._handle_map  # created by every init()
        weighing = self.weight.weighing(self.passes.per_update > 1)
        self._exchange.weigh(weighing is not None)
        try:
            self._started[bucket] = bucket.submit(self._exchange, self._exchanges, weighing)
        except (horovod.HorovodInternalError, ValueError) as error:
            self._abort(bucket.names, error)

    # --- one update -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a new update; finished gradients are treated as local ones from here on."""
        self.finished, self._unscaled = False, False
        self._clip = None
        self._clear_counts()

    def restart(self) -> None:
        """Begin a new update, and count backward passes and calls of step() from zero."""
        self.passes.restart()
        self.begin()

    def updated(self) -> None:
        """Begin a new update after one was made, with the counts that the script has shown."""
        self.passes.updated()
        self.begin()

    def set_weight(self, weight: Any) -> None:
        """Set the weight of the next backward passes. Raises UsageError within one, or for an invalid weight."""
        several = self.passes.per_update > 1
        self.weight.give(weight, bool(self._started), bool(self._seen), several)

    def _clear_counts(self) -> None:
        for gradient in self._seen:
            gradient.count, gradient.fresh = 0, False
            self.buckets.of[gradient].complete = 0
        self._seen.clear()
        self._stored.clear()
        self.weight.clear()

    def finish(self) -> None:
        """Complete the exchange of every gradient; afterwards `parameter.grad` holds the results on all ranks.

        A parameter without gradient contributes zeros; if no rank has a gradient it keeps none, as far as ranks check
        this. Raises HorovodInternalError, naming the parameter, if ranks disagree on a shape or type or if a rank is
        lost; UsageError if a gradient was changed since it was submitted.
        """
        self.forget_if_ranks_changed()
        if self._exchange is not None:
            self.watch_all()
            everyone = self.buckets.all
            started = self._started if self._exchanges else ()
            changed = next((found for bucket in started if (found := bucket.changed(everyone))), "")
            # If gradients are not sent, no other rank can supply one that is missing here.
            absent = [] if self._exchanges else [one for one in everyone if one.parameter.grad is None]
            totals: list[Tensor] = []
            with torch.no_grad():
                for bucket, results in self._exchange_all():
                    if not changed:
                        bucket.store(results, self._exchange.lag, self._exchange.divides)
                        if results is not None and bucket.total is not None:
                            totals.append(bucket.total)
            for gradient in absent or [one for one in everyone if one.idle]:
                gradient.parameter.grad = None
            answered = bool(self._exchange.complete())
            if self._exchange.weighted:
                self.weight.know_total(totals, answered)
            if changed:  # after the other ranks have got the results that they wait for
                self.restart()
                raise UsageError(
                    f"Rank {horovod.rank()}: the gradient of {changed} since backward() submitted it, and before "
                    "synchronize() or step() combined it with those of the other ranks.",
                    "Call optimizer.synchronize() after backward() and before gradients are changed.",
                )
        else:
            self.weight.divide_here(self.buckets.all, self.passes.per_update > 1)
        self._clear_counts()
        self.finished = True
        if self._clip is not None:
            clip, self._clip = self._clip, None
            clip()

    def _exchange_all(self) -> Iterator[tuple[Bucket, list[Tensor] | None]]:
        """Start the buckets that are not started, then wait for one result after the other."""
        assert self._exchange is not None
        gradients = [gradient for gradient in self.buckets.all if gradient.active]
        self._agree(gradients)
        self._exchange.announce(len(gradients))
        started = self._stored.union(*(bucket.gradients for bucket in self._started))
        buckets = dict.fromkeys(self.buckets.of[one].active() for one in gradients if one not in started)
        missing = [one for one in buckets if started.isdisjoint(one.gradients) and not one.idle]
        if missing:
            separate(started, [gradient for bucket in missing for gradient in bucket.gradients])
        for bucket in missing:
            self._start(bucket)
        for bucket, answer in self._started.items():
            yield bucket, self._answered(bucket, answer)
        self._started.clear()

    def _agree(self, gradients: Sequence[Gradient]) -> None:
        """Agree with all ranks on the layouts of `gradients`, and form flat buckets of new small ones."""
        assert self._exchange is not None
        new = [one for one in gradients if one.sparse_dims is None and not one.idle]
        again = [one for one in gradients if one.idle or (self._find_unused and one.sparse_dims is not None)]
        wire: Any = self._exchange.gradients_wire
        try:
            if again:
                look(again, wire)
            if new:
                buckets = digest(self.buckets.all, {one for one in new if one.small})
                if agree(new, wire, self._exchange.settings, buckets):
                    self.buckets.form_flat(new)
        except (horovod.HorovodInternalError, ValueError) as error:
            self._abort([one.name for one in (*again, *new)], error)

    def _answered(self, bucket: Bucket, answer: Answer) -> list[Tensor] | None:
        try:
            return answer()
        except (horovod.HorovodInternalError, ValueError) as error:
            self._abort(bucket.names, error)

    def before_clipping(self, clip: Callable[[], object]) -> None:
        """Combine gradients in flight before a script clips them with `clip`.

        A rank without gradients in this update cannot know yet if others have any: it clips when it gets their
        gradients.
        """
        if self.finished or not self.passes.next_call_updates():
            return
        if self.pending or self.sharded:
            self.finish()
        else:
            self._clip = clip

    def before_unscaling(self, scale: float) -> None:
        """Combine gradients before a GradScaler of this scale reads them: all ranks must see the same values.

        Gradients in flight may have been scaled by another factor.
        """
        if not self.finished and not self.passes.next_call_updates():
            raise UsageError(
                f"A GradScaler was used after {self.passes.backwards} of {self.passes.per_update} backward passes.",
                "Call scaler.unscale_, scaler.step and scaler.update only after the last pass of an accumulation: "
                "the scale must not change between its passes.",
            )
        if self._unscaled:
            # The last update was skipped, and without a gradient on this rank since, nothing has begun a new one.
            self.begin()
        if not self.finished:
            self.finish()
        factor = self._exchange.rescaled(scale) if self._exchange is not None else 1.0
        self._unscaled = True
        if factor != 1.0:
            for gradient in self.buckets.all:
                if gradient.parameter.grad is not None:
                    gradient.parameter.grad.mul_(factor)

    def discard(self) -> bool:
        """Complete the exchange of every gradient and drop the results; a collective call.

        After `finish` its stored results are dropped, before it the gradients computed since. Returns True if the
        replicas must be averaged to be equal again. Leaves `parameter.grad` to the caller.
        """
        parted = False
        self.forget_if_ranks_changed()
        if self._exchange is not None:
            answers: dict[str, list[Tensor]] = {}
            if not self.finished:
                self.watch_all()
                with torch.no_grad():
                    answers = {one.identity.name: results for one, results in self._exchange_all() if results}
            parted = self._exchange.discard(answers)
        self.restart()
        return parted

    # --- what is in flight between updates ------------------------------------------------------------------------

    def drain(self) -> Iterator[float]:
        """Store one update in flight after the other, oldest first, in `parameter.grad`; yield its GradScaler's scale.

        Afterwards gradients are as after zero_grad(): None where they were None, else zeros in the same tensors. Raises
        UsageError while gradients of a backward pass are in flight.
        """
        if self.pending or self._started:
            raise UsageError(
                "drain() was called between backward() and step().", "Call step() first, then drain() on all ranks."
            )
        if self._exchange is None:
            return
        self.watch_all()
        updates = [
            (self.buckets.by_name(self._exchange, results), scale)
            for results, scale in self._exchange.drain()
            if not (self._exchange.weighted and without_work(results))
        ]
        owed = self.buckets.settle()
        if owed and not updates:
            updates = [({}, 1.0)]
        if not any(results or owed for results, _ in updates):
            return
        gradients = {gradient.name: gradient for gradient in self.buckets.all}
        before = [(gradient.parameter, gradient.parameter.grad) for gradient in self.buckets.all]
        try:
            for results, scale in updates:
                self.restart()
                for parameter, _ in before:
                    parameter.grad = None
                with torch.no_grad():
                    for name, result in {**owed, **results}.items():
                        tensor = torch.from_numpy(result) if isinstance(result, np.ndarray) else result
                        if self._exchange.lag is not None or bool(tensor.any()):  # else nothing of it was left
                            gradients[name].store(tensor)
                yield scale
        finally:
            for parameter, grad in before:
                parameter.grad = grad
                if grad is not None:
                    grad.zero_()

    def in_flight(self) -> dict[str, Any] | None:
        """Return the state in flight by the names of parameters, for saving; None if nothing is in flight."""
        self.forget_if_ranks_changed()
        return None if self._exchange is None else saved(self._exchange, self.buckets)

    def load_in_flight(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """Load saved state into another optimizer of the same parameters; None: nothing is in flight."""
        if self._exchange is not None and state is None:
            self._exchange.wire.encoding.load(None)
        elif self._exchange is not None and state is not None:
            self.watch_all()
            load(self._exchange, self.buckets, state, weights)

    def forget(self) -> None:
        """Drop values in flight and all agreements, without waiting: the ranks failed or changed."""
        self._world = world(self._library)
        self._started.clear()
        if self._exchange is not None:
            self._exchange.forget()
        self.buckets.forget()
        self.restart()

    def forget_if_ranks_changed(self) -> None:
        """Reset in a new world. Raises UsageError if the world changed between backward() and step()."""
        if self._world is not world(self._library):
            self.forget()
        elif self._started and self._handles is not horovod.mpi_ops._handle_map:
            self.forget()
            raise UsageError(
                f"Rank {horovod.rank()}: hvd.init() was called between backward() and step(), and Horovod has "
                "forgotten the gradients that travel.",
                "Call hvd.init() before the training, or between updates.",
            )

    def _abort(self, names: Sequence[str], error: Exception) -> NoReturn:
        """Reset, and raise Horovod's error with the names of the gradients."""
        self.forget()
        found = named(error, listed(names))
        if found is error:
            raise error
        raise found from error
