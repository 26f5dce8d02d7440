"""Gradients of one optimizer on their way: started as they appear, put back when all have arrived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from paceline.exchange.adapter import Answer, Weights
from paceline.exchange.base import Exchange
from paceline.native.library import loaded
from paceline.native.world import world
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.accumulation import GradientAccumulation
from paceline.torch.optimizer.buckets import digest
from paceline.torch.optimizer.company import Company
from paceline.torch.optimizer.failures import named, names_of
from paceline.torch.optimizer.gradients import part, store
from paceline.torch.optimizer.hooks import GradientHooks
from paceline.torch.optimizer.layouts import Layouts
from paceline.torch.optimizer.member import Member
from paceline.torch.optimizer.members import Members
from paceline.torch.optimizer.owners import enter, own
from paceline.torch.optimizer.replaced import refuse_in_flight, refuse_uncounted
from paceline.torch.optimizer.storage import lent
from paceline.torch.optimizer.submitted import change_in_flight, counts_writes


class Reduction:
    """Watches the parameters of an optimizer and exchanges their gradients with the other ranks.

    A gradient starts to travel in the backward pass, right after the last of its accumulations; gradients of a group
    start together. `finish` starts what is missing, in the order of the parameters, waits, and stores the results in
    `parameter.grad`. Without an `exchange` (one rank) passes are counted and nothing travels.

    `finished` is true from `finish` until a new gradient appears or `restart`.
    """

    def __init__(
        self,
        members: Members,
        exchange: Exchange | None,
        layouts: Layouts,
        accumulation: GradientAccumulation,
        find_unused: bool = False,
    ) -> None:
        """`find_unused`: ranks ask each other in every update which parameters have a gradient."""
        self.finished = False
        self._members = members
        self._exchange = exchange
        self._layouts = layouts
        self._accumulation = accumulation
        self._find_unused = find_unused
        self._seen: list[Member] = []  # those that had a gradient since the last update
        self._started: dict[Company, Answer] = {}
        self._done: set[Member] = set()  # those whose exchange was completed before others were replaced
        self._travelled: dict[Member, Company] = {}  # what a member last travelled with
        self._library = loaded("torch")
        self._world = world(self._library)
        self._handles: object = None  # Horovod's table of what travels, when the last of it was started
        self._hooks: dict[Member, GradientHooks] = {}
        self._watched: list[Member] | None = None  # Members.all when it was looked through last
        # One thread per device runs hooks.
        self._lock = threading.Lock()
        self._clip: Callable[[], object] | None = None  # what is still to be done to combined gradients
        # Without travel every optimizer has gradients of its own.
        self._travels = exchange is not None and exchange.settings.gradients_travel
        if self._travels:
            enter(self)

    @property
    def pending(self) -> bool:
        """Whether gradients have appeared whose exchange is not complete."""
        return self._exchange is not None and bool(self._seen)

    @property
    def seen(self) -> list[Tensor]:
        """The parameters that had a gradient since the last update."""
        return [member.parameter for member in self._seen]

    @property
    def travelling(self) -> list[list[str]]:
        """Whose gradients have been started in this update; by name, those together that travel together."""
        return [[member.name for member in company.members] for company in self._started]

    def watch_all(self) -> None:
        """Watch every parameter of the optimizer that is not watched yet, and name those that came since.

        Raises UsageError if parameters were replaced while something is in flight that is kept between updates.
        """
        if self._members.stale:
            self._meet_replaced()
            self._members.update()
        # With one rank and one pass per update there is nothing to see: the hooks would only cost.
        if self._watched is self._members.all or (self._exchange is None and self._accumulation.per_update == 1):
            return
        self._watched = self._members.all
        present = set(self._watched)
        for gone in [member for member in self._hooks if member not in present]:
            del self._hooks[gone]
            self._travelled.pop(gone, None)
            if gone in self._seen:
                self._seen.remove(gone)
        for member in self._watched:
            parameter = member.parameter
            if member not in self._hooks and parameter.is_leaf and parameter.is_floating_point():
                self._hooks[member] = GradientHooks(member, self)

    def refuse_uncounted(self) -> None:
        """Raise UsageError if parameters were replaced, and their gradients could not be counted since."""
        refuse_uncounted(self._members)

    def _meet_replaced(self) -> None:
        if self._exchange is None or not refuse_in_flight(self._members, self._exchange, self.pending):
            return
        # The new ones travel under the names of the old ones.
        with torch.no_grad():
            for company, answer in self._started.items():
                company.store(self._answered(company, answer), self._exchange.lag)
                self._done.update(company.members)
        self._started.clear()
        self._exchange.around.forget()

    def has(self, parameter: Tensor) -> bool:
        """Whether it is a parameter of this optimizer."""
        return parameter in self._members

    def before_clipping(self, clip: Callable[[], object]) -> None:
        """Combine gradients in flight before a script clips them; `clip` does so.

        A rank that has no gradient in this update cannot know yet that others have: it clips when it is given theirs.
        """
        if self.finished or not self._accumulation.next_call_updates():
            return
        if self.pending:
            self.finish()
        else:
            self._clip = clip

    def restart(self) -> None:
        """Begin a new update; gradients that were finished are as good as local ones from here on."""
        self.finished = False
        self._clip = None
        self._clear_counts()

    def _clear_counts(self) -> None:
        for member in self._seen:
            member.count, member.fresh = 0, False
            self._members.company[member].complete = 0
        self._seen.clear()
        self._done.clear()

    def forget(self) -> None:
        """Give up what is travelling and all that was agreed, without waiting: the ranks failed or changed."""
        self._world = world(self._library)
        self._started.clear()
        if self._exchange is not None:
            self._exchange.forget()
        self._members.forget()
        self._accumulation.restart()
        self.restart()

    def finish(self) -> None:
        """Complete the exchange of every gradient; afterwards `parameter.grad` holds the results on all ranks.

        A parameter that had no gradient contributes zeros; one that has none on any rank keeps none, as far as ranks
        ask each other. Raises HorovodInternalError, naming the parameter, when ranks disagree on a shape or type or
        when a rank is lost; UsageError if a gradient was changed since it was submitted.
        """
        self._forget_if_ranks_changed()
        if self._exchange is not None:
            self.watch_all()
            changed = change_in_flight(self._started, self._members.all) if self._travels else ""
            # Without travel nobody else can have a gradient for a parameter that has none here.
            absent = [] if self._travels else [one for one in self._members.all if one.parameter.grad is None]
            with torch.no_grad():
                for company, results in self._exchange_all():
                    if not changed:
                        company.store(results, self._exchange.lag)
            for member in absent or [one for one in self._members.all if one.idle]:
                member.parameter.grad = None
            self._exchange.complete()
            if changed:  # after the other ranks were given what they wait for
                self._accumulation.restart()
                self.restart()
                raise UsageError(
                    f"Rank {horovod.rank()}: the gradient of {changed} since backward() submitted it, and before "
                    "synchronize() or step() combined it with those of the other ranks.",
                    "Call optimizer.synchronize() after backward() and before gradients are changed.",
                )
        self._clear_counts()
        self.finished = True
        if self._clip is not None:
            clip, self._clip = self._clip, None
            clip()

    def discard(self) -> bool:
        """Complete the exchange of every gradient and drop the results; all ranks must.

        After `finish` these are the ones that it stored, before it what was computed since. Returns whether the
        replicas must be averaged to be equal again. Leaves `parameter.grad` to the caller.
        """
        parted = False
        self._forget_if_ranks_changed()
        if self._exchange is not None:
            answers: dict[str, list[Tensor]] = {}
            if not self.finished:
                self.watch_all()
                with torch.no_grad():
                    answers = {one.bucket.name: results for one, results in self._exchange_all() if results}
            parted = self._exchange.discard(answers)
        self._accumulation.restart()
        self.restart()
        return parted

    def rescale(self, scale: float) -> None:
        """Scale the results by `scale`, the GradScaler's of this update: in flight it may have been another one."""
        factor = self._exchange.rescaled(scale) if self._exchange is not None else 1.0
        if factor != 1.0:
            for member in self._members.all:
                if member.parameter.grad is not None:
                    member.parameter.grad.mul_(factor)

    def drain(self) -> Iterator[float]:
        """Put one update in flight after the other, oldest first, into `parameter.grad`; yields its GradScaler's scale.

        Afterwards gradients are as after zero_grad(): None where they were None, else zeros in the same tensors. Raises
        UsageError while gradients of a backward pass travel.
        """
        if self.pending or self._started:
            raise UsageError(
                "drain() was called between backward() and step().", "Call step() first, then drain() on all ranks."
            )
        if self._exchange is None:
            return
        self.watch_all()
        drained = self._exchange.drain()
        if not drained and self._exchange.lag is None:
            drained = [(self._members.owed(), 1.0)]
        if not any(results for results, _ in drained):
            return
        named: dict[Any, Member] = {member.name: member for member in self._members.all}
        parameters = [member.parameter for member in self._members.all]
        before = [parameter.grad for parameter in parameters]
        try:
            for results, scale in drained:
                self._accumulation.restart()
                self.restart()
                for parameter in parameters:
                    parameter.grad = None
                with torch.no_grad():
                    for name, result in self._members.by_member(results, take=True).items():
                        tensor = torch.from_numpy(result) if isinstance(result, np.ndarray) else result
                        if self._exchange.lag is not None or bool(tensor.any()):  # else there was nothing left of it
                            store(named[name], tensor)
                yield scale
        finally:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient
                if gradient is not None:
                    gradient.zero_()

    def in_flight(self) -> dict[str, Any] | None:
        """What is in flight, by the names of parameters, to be saved; None if nothing is."""
        self._forget_if_ranks_changed()
        state = self._exchange.state() if self._exchange is not None else None
        if state is None:
            return None
        return {**state, "in_flight": [(self._members.by_member(one), scale) for one, scale in state["in_flight"]]}

    def load_in_flight(self, state: dict[str, Any] | None, weights: Weights) -> None:
        """Go on with what was saved, with another optimizer of the same parameters; None: with nothing in flight."""
        if self._exchange is None:
            return
        if state is None:
            self._exchange.adapter.travel.load(None)
            return
        self.watch_all()
        loaded = {name for results, _ in state["in_flight"] for name in results}
        self._members.stay_single(loaded)
        companies = list(dict.fromkeys(self._company(member) for member in self._members.all))
        self._exchange.load(state, [company.bucket for company in companies], weights)
        self._travelled = {one: company for company in companies for one in company.members if one.name in loaded}

    def _exchange_all(self) -> Iterator[tuple[Company, list[Tensor] | None]]:
        """Start what has not been started, then wait for one result after the other."""
        assert self._exchange is not None
        members = [member for member in self._members.all if member.active]
        new = [member for member in members if member.sparse_dims is None and not member.idle]
        again = [member for member in members if member.idle or (self._find_unused and member.sparse_dims is not None)]
        if new or again:
            self._agree(new, again)
        self._exchange.announce(len(members))
        started = self._done.union(*(company.members for company in self._started))
        companies = dict.fromkeys(self._company(member) for member in members if member not in started)
        missing = [one for one in companies if started.isdisjoint(one.members) and not one.idle]
        if missing:
            part(list(started), [member for company in missing for member in company.members])
        for company in missing:
            self._start(company)
        for company, answer in self._started.items():
            yield company, self._answered(company, answer)
        self._started.clear()

    def _answered(self, company: Company, answer: Answer) -> list[Tensor] | None:
        try:
            return answer()
        except (horovod.HorovodInternalError, ValueError) as error:
            self._give_up(company.members, error)

    def _agree(self, new: list[Member], again: list[Member]) -> None:
        """Learn what all ranks know of these gradients, and form buckets of those that are small and new."""
        assert self._exchange is not None
        choice = self._exchange.adapter.travel.choice
        try:
            if again:
                self._layouts.look(again)
            buckets = digest(self._members.all, {one for one in new if one.small})
            if new and self._layouts.agree(new, self._exchange.settings, choice, buckets):
                self._members.form_buckets(new)
        except (horovod.HorovodInternalError, ValueError) as error:
            self._give_up([*again, *new], error)

    def arriving(self, member: Member) -> None:
        """Before a gradient is added to `parameter.grad`: refuse a pass too many while what travels is still whole."""
        with self._lock:
            self._begin_if_finished()
            count = member.count + 1
            if count == 1:
                member.fresh = member.parameter.grad is None
                self._clip = None
                if self._travels and not member.owned:
                    own(member, self)
                    member.owned = True
            if count > self._accumulation.per_update:
                raise UsageError(
                    f"The gradient of {member.name!r} was computed {count} times before step() or "
                    f"synchronize(); backward_passes_per_step={self._accumulation.per_update}.",
                    "Call step() after every backward_passes_per_step backward passes, or raise "
                    "backward_passes_per_step to accumulate gradients of several passes.",
                )

    def arrived(self, member: Member, handed: Tensor | None) -> None:
        """After the gradient `handed` was added to `parameter.grad`; `arriving` came before."""
        gradient = member.parameter.grad
        with self._lock:
            if gradient is not None:
                if gradient.requires_grad:
                    raise UsageError(
                        f"The gradient of {member.name!r} carries a graph of its own (create_graph=True).",
                        "Compute gradients of gradients with torch.autograd.grad and call backward() without "
                        "create_graph.",
                    )
                last = member.count + 1 == self._accumulation.per_update
                # A bucket copies it.
                if (
                    self._exchange is not None
                    and not (last and self._members.company[member].flat)
                    and lent(gradient, handed)
                ):
                    member.parameter.grad = gradient.detach().clone()  # results are written there
            if not member.count:
                self._seen.append(member)
            member.count += 1
            self._accumulation.saw_gradient(member.count)
            if self._exchange is not None and member.count == self._accumulation.per_update:
                self._start_if_complete(member)

    def _start_if_complete(self, member: Member) -> None:
        company = self._members.company[member]
        company.complete += 1
        if company.complete == 1:
            company.awaited = sum(other.active for other in company.members)
        if company.complete < company.awaited:
            return
        company = company.active()
        if member.sparse_dims is None and not company.always_dense:
            gradient = member.parameter.grad
            # `finish` learns first what the other ranks have, and forms buckets.
            if member.small or (gradient is not None and gradient.is_sparse):
                return
        if not torch.is_grad_enabled():
            self._start(company)
            return
        with torch.no_grad():
            self._start(company)

    def _company(self, member: Member) -> Company:
        """What travels with this one: its group less the frozen, or itself."""
        return self._members.company[member].active()

    def _start(self, company: Company) -> None:
        assert self._exchange is not None
        for member in company.keys:
            if self._travelled.get(member) is not company:
                self._keep_company(member, company)
        gradients = company.outgoing()
        if self._travels:
            counts = counts_writes(gradients[0])
            for member in company.members:
                member.submit(counts)
        self._handles = horovod.mpi_ops._handle_map  # made anew by every init()
        try:
            self._started[company] = self._exchange.start(company.bucket, gradients)
        except (horovod.HorovodInternalError, ValueError) as error:
            self._give_up(company.members, error)

    def _keep_company(self, member: Member, company: Company) -> None:
        """`member` travels with `company` from here on. Raises UsageError if what is in flight travels with others."""
        assert self._exchange is not None
        before = self._travelled.get(member)
        if before is not None and self._exchange.filled:
            raise UsageError(
                f"Rank {horovod.rank()}: {member.name!r} is in another group than in the update that is "
                f"in flight; expected {names_of(before.members)}, found {names_of(company.members)}.",
                "Call drain() on all ranks before a member of a group of gradients is frozen or unfrozen.",
            )
        self._travelled[member] = company

    def _begin_if_finished(self) -> None:
        self._forget_if_ranks_changed()
        if self.finished:
            self._accumulation.restart()
            self.restart()

    def _forget_if_ranks_changed(self) -> None:
        if self._world is not world(self._library):
            self.forget()
        elif self._started and self._handles is not horovod.mpi_ops._handle_map:
            self.forget()
            raise UsageError(
                f"Rank {horovod.rank()}: hvd.init() was called between backward() and step(), and Horovod has "
                "forgotten the gradients that travel.",
                "Call hvd.init() before the training, or between updates.",
            )

    def _give_up(self, members: Sequence[Member], error: Exception) -> NoReturn:
        """Name the gradients in an error of Horovod, and leave nothing half done behind."""
        self.forget()
        found = named(error, names_of(members))
        if found is error:
            raise error
        raise found from error
