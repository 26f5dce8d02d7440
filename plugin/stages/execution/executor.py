"""Execution of a schedule on one stage.

Sends and receives follow from the data: a FORWARD receives the activations of the previous stage and sends its own; a
BACKWARD receives the gradients of the next stage and sends those of its inputs. Sends are not waited for; receives are
posted before they are needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.stages.execution.activations import Signature
from paceline.stages.execution.arrivals import Arrivals, GradientArrivals
from paceline.stages.execution.batches import Microbatches
from paceline.stages.execution.departures import Departures
from paceline.stages.execution.evaluation import Output
from paceline.stages.execution.flight import Flight
from paceline.stages.execution.losses import Losses
from paceline.stages.execution.posting import Post, Tag
from paceline.stages.execution.tensors import Tensors
from paceline.stages.execution.updates import Updates
from paceline.stages.execution.versions import VersionedWeights
from paceline.stages.instructions import Instruction, Kind
from paceline.stages.schedule import Schedule


class Passes(Protocol):
    """Computation with the layers of a stage.

    `stashed`: backward passes use the weights of their forward passes; otherwise the newest weights, corrected by
    `correction` if it is set.
    """

    stashed: bool
    correction: Any

    def lent(self) -> AbstractContextManager[None]:
        """Return a context for passes, which restores the state of the process that they change."""
        ...

    @property
    def flight(self) -> type[Flight]:
        """Class of its flights."""
        ...

    def forward(self, flight: Any) -> tuple[list[Any], list[bool]]:
        """Return the stage's outputs, and for each whether a gradient will come; the last stage returns its loss."""
        ...

    def backward(self, flight: Any, gradients: list[Any] | None) -> list[Any]:
        """Add to the gradients of the weights; return those of the differentiable inputs, in the inputs' layout.

        `gradients`: of the outputs that need them, or None for a loss.
        """
        ...

    def evaluate(self, flight: Any) -> list[Any]:
        """Return the stage's outputs for a micro-batch without a backward pass."""
        ...


@dataclass
class Given:
    """The user's arguments on a stage for one mini-batch of `count` micro-batches.

    The first stage takes `batch`. The last stage takes `target`, and returns outputs without one.
    """

    count: int
    batch: Microbatches | None
    target: Microbatches | None


class Executor:
    """Executor of one stage; the arguments are its parts.

    Attributes:
        most_held: largest number so far of micro-batches with activations between their passes.
        most_copies: largest number so far of copies of the weights.
        gaps: for the micro-batches of the last update, the number of updates between the weights of their forward
            passes and the update itself; and the same for their backward passes.
    """

    def __init__(
        self,
        post: Post,
        tensors: Tensors,
        microbatches: int,
        weights: VersionedWeights,
        passes: Passes,
        updates: Updates,
        losses: Losses,
        mean: bool,
    ) -> None:
        self.stage, self.stages = post.communicator.rank, post.communicator.size
        self.most_held = 0
        self.most_copies = 1
        self.gaps: tuple[list[int], list[int]] = ([], [])
        self._at: Instruction | str = ""
        self._post, self._tensors = post, tensors
        self._weights, self._passes, self._updates = weights, passes, updates
        self._losses, self._mean = losses, mean
        self._first, self._last = self.stage == 0, self.stage == self.stages - 1
        self._arrivals = Arrivals(post, tensors, self.stage - 1, microbatches)
        self._departures = Departures(post, tensors, self.stage + 1, microbatches)
        self._gradients = GradientArrivals(post, tensors, self.stage + 1)
        self._places = range(microbatches)
        self._flights: dict[tuple[int, int], Flight] = {}
        # Versions of the weights in the passes of a mini-batch, until its update.
        self._versions: dict[int, tuple[list[int], list[int]]] = {}
        # On the last stage: sum of a mini-batch's losses so far; True if it is complete and not sent yet.
        self._total: Any = None
        self._unreported = False
        self._outputs: list[Output] = []

    @property
    def doing(self) -> str:
        """The current instruction, for messages."""
        return f"at {self._at}" if self._at else "before its first instruction"

    def begin(self, schedule: Schedule) -> None:
        """Start `schedule` from its beginning; nothing is in flight."""
        self._schedule = schedule
        self._passes.stashed = schedule.backward_weights == "forwards"
        self._base = self._weights.count
        self._weights.previous = None

    def run(self, instructions: Iterable[Instruction], given: Given | None) -> None:
        """Execute the instructions in turn. `given`: arguments for their FORWARDs, all of one mini-batch."""
        self._weights.refresh()
        if given is not None:
            self._expect(given)
            self._losses.expect()
        with self._passes.lent():
            for one in instructions:
                self._at = one
                if one.kind is Kind.FORWARD:
                    assert given is not None
                    self._forward(one, one.microbatch % len(self._places), given)
                elif one.kind is Kind.BACKWARD:
                    self._backward(one)
                    self._report_loss()
                else:
                    self._update(one, given is None)
                self._make_room()
            self._report_loss()

    def evaluate(self, given: Given) -> None:
        """Do only forward passes, at the newest weights, and sum up the loss; nothing is in flight."""
        self._losses.expect()
        self._pass_forward(given, "an evaluation")

    def predict(self, given: Given) -> list[Output]:
        """Do only forward passes without targets; return the last stage's outputs by micro-batch, none on others."""
        self._pass_forward(given, "a prediction")
        found, self._outputs = self._outputs, []
        return found

    def _pass_forward(self, given: Given, what: str) -> None:
        self._weights.refresh()
        self._expect(given)
        with self._passes.lent():
            for microbatch in range(given.count):
                self._at = f"micro-batch {microbatch} of {what}"
                flight = self._flight(microbatch, given, self._weights.count)
                outputs = self._passes.evaluate(flight)
                self._hand_on(microbatch, given, flight, outputs, [False] * len(outputs))
                self._make_room()
            self._report_loss()

    def _expect(self, given: Given) -> None:
        """Expect the messages of a mini-batch's forward passes."""
        if not self._first:
            self._arrivals.expect(range(given.count))

    def _make_room(self) -> None:
        """Release memory of sent messages, and post memory for the next ones, after sending what others wait for."""
        self._post.sweep()
        self._arrivals.replenish()
        self._gradients.replenish()

    def _forward(self, one: Instruction, microbatch: int, given: Given) -> None:
        """Do a FORWARD. `microbatch`: its index in `given`, because an update may take more of them than a step."""
        updates = self._weights.count - self._base
        version = self._base + self._schedule.forward_version(one.minibatch, updates)
        flight = self._flight(microbatch, given, version)
        outputs, wanted = self._passes.forward(flight)
        self._flights[one.minibatch, one.microbatch] = flight
        self._versions.setdefault(one.minibatch, ([], []))[0].append(version)
        self.most_held = max(self.most_held, len(self._flights))
        form = self._hand_on(microbatch, given, flight, outputs, wanted)
        if form is not None:
            self._gradients.expect(form)

    def _flight(self, microbatch: int, given: Given, version: int) -> Flight:
        """Return a micro-batch, after waiting for it on all stages but the first."""
        weights, (target, share) = self._weights.of_count(version), self._target(microbatch, given)
        if self._first:
            assert given.batch is not None
            kind, inputs = given.batch[microbatch]
            inputs = [self._tensors.here(each) for each in inputs]
            differentiable = [False] * len(inputs)
        else:
            form, inputs = self._arrivals.take()
            kind, differentiable = form.kind, [each.differentiable for each in form.forms]
            self._arrivals.progress()
        return self._passes.flight(version, weights, kind, inputs, differentiable, target, share)

    def _hand_on(
        self, microbatch: int, given: Given, flight: Flight, outputs: list[Any], wanted: list[bool]
    ) -> Signature | None:
        """Send a stage's outputs to the next, and return their signature; the last sums losses or keeps outputs."""
        if self._last and given.target is None:
            self._outputs.append(Output(flight.output_kind, outputs))
            return None
        if self._last:
            loss = self._tensors.detached(outputs[0])
            self._total = loss if microbatch == 0 else self._total + loss
            self._unreported = microbatch == given.count - 1
            return None
        hosts = [self._tensors.host(each) for each in outputs]
        forms = [self._tensors.form(each, with_gradient) for each, with_gradient in zip(hosts, wanted, strict=True)]
        form = Signature(flight.output_kind, tuple(forms))
        self._departures.send(microbatch, form, hosts)
        return form

    def _report_loss(self) -> None:
        """Send the loss of a complete mini-batch, after more urgent messages."""
        if self._unreported:
            self._unreported = False
            self._losses.report(self._tensors.number(self._total))

    def _target(self, microbatch: int, given: Given) -> tuple[Any, float]:
        """Return the last stage's target, on its device, and the weight of this micro-batch's loss."""
        if not self._last or given.target is None:
            return None, 1.0
        kind, tensors = given.target[microbatch]
        share = given.target.shares[microbatch] if self._mean else 1.0
        return self._tensors.whole(kind, [self._tensors.here(each) for each in tensors]), share

    def _backward(self, one: Instruction) -> None:
        gradients = None if self._last else self._gradients.take()
        self._arrivals.progress()
        flight = self._flights.pop((one.minibatch, one.microbatch))
        version = self._schedule.backward_version(flight.count - self._base, self._weights.count - self._base)
        self._versions[one.minibatch][1].append(self._base + version)
        for gradient in self._passes.backward(flight, gradients):
            self._post.send(self.stage - 1, Tag.GRADIENT, self._tensors.memory(self._tensors.host(gradient)))

    def _update(self, one: Instruction, draining: bool) -> None:
        count = self._weights.count
        used = any(flight.version is self._weights.newest for flight in self._flights.values())
        as_previous = self._schedule.forward_weights == "previous" and not draining
        forwards, backwards = self._versions.pop(one.minibatch)
        minibatches = len(forwards) // len(self._places) if self._mean else 1
        self._updates.apply(self._schedule.synchronous, self._passes.stashed and used, as_previous, minibatches)
        self.most_copies = max(self.most_copies, self._weights.copies)
        self.gaps = [count - version for version in forwards], [count - version for version in backwards]
