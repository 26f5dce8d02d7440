"""What hvd.Pipeline of all frameworks has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from paceline import renamed
from paceline.errors import UsageError
from paceline.native.library import loaded
from paceline.native.mail import Mail
from paceline.native.world import world
from paceline.stages.execution import posting
from paceline.stages.execution.batches import Microbatches
from paceline.stages.execution.evaluation import joined, of_last_stage
from paceline.stages.execution.executor import Given
from paceline.stages.execution.grid import Grid, PipelineMail
from paceline.stages.execution.guard import Guard
from paceline.stages.execution.losses import Losses
from paceline.stages.execution.parting import part
from paceline.stages.execution.parts import Parts
from paceline.stages.execution.posting import Post
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.tensors import Tensors
from paceline.stages.execution.terms import meet
from paceline.stages.schedule import Schedule
from paceline.steps import Steps


class _Made(Counter[int]):
    """How many pipelines there were, by process set: their messages are kept apart."""


class StagedTraining(ABC):
    """Steps of a schedule on one stage. A subclass builds its stage between `_meet` and `_equip`.

    `library`: "torch" or "tensorflow", whose Horovod connects the ranks of `process_set` if there is no `mail`.
    """

    _settings: Settings
    # The names of the first layers of all stages.
    _cut: list[str]

    def __new__(cls, *_: Any, **given: Any) -> StagedTraining:
        """Raise UsageError for a keyword argument of Paceline 0.1 that has another name now."""
        renamed.refuse_keywords(cls.__name__, given)
        return super().__new__(cls)

    def __init__(self, library: str, process_set: Any, mail: posting.Mail | None) -> None:
        set_id = process_set.process_set_id
        self._mail: posting.Mail = Mail(loaded(library), set_id) if mail is None else mail
        self._guard = Guard(self._mail)
        self._take_place(1)
        self._own_connections = None if mail is not None else (loaded(library), set_id)

    def _take_place(self, replicas: int) -> None:
        """Of the ranks `replicas` pipelines are made. Raises UsageError where that cannot be."""
        self._grid = Grid(self._mail.size, replicas)
        self.stage, self.replica = self._grid.place(self._mail.rank)
        self.stages, self.replicas = self._grid.stages, replicas
        if replicas > 1:
            self._guard.who = f"stage {self.stage} of replica {self.replica}"

    def _meet(self, asked: Callable[[], dict[str, Any]]) -> None:
        """Wait for all ranks to ask for the same as `asked` returns, or for what it raises on one of them."""
        before = 0
        if self._own_connections is not None:
            library, set_id = self._own_connections
            before = world(library).of(_Made)[set_id]
        meet(Post(self._mail), _tried(lambda: {**asked(), "pipelines before": before}))
        if self._own_connections is not None:
            world(library).of(_Made)[set_id] = before + 1
        # The tags of one pipeline end where those of the next begin.
        first_tag = before * len(posting.Tag)
        self._everyone = Post(self._mail, first_tag)
        self._post = self._everyone
        if self.replicas > 1:
            self._post = Post(PipelineMail(self._mail, self._grid.pipeline(self.replica)), first_tag)

    def _agree(self, asked: Callable[[], tuple[dict[str, Any], Any]], doing: str = "build its stage") -> list[Any]:
        """As `_meet`, once more: `asked` returns what must be the same, and what is this rank's own; that of all.
        `doing`: of `meet`.
        """
        own = None
        terms: dict[str, Any] | Exception
        try:
            terms, own = asked()
        except Exception as error:
            terms = error
        with self._guard.refusing():
            return meet(self._everyone, terms, own, doing)

    def _losses_of(self, together: bool) -> Losses:
        """`together`: steps return losses of all replicas, not of this one alone."""
        return Losses(self._everyone, self._grid, self._settings.loss_reduction == "mean", together)

    def _equip(self, tensors: Tensors, parts: Parts) -> None:
        """The stage is built."""
        self._tensors = tensors
        self.optimizer, self._clipping, self._correction = parts.optimizer, parts.clipping, parts.correction
        self._nesterov, self._passes, self._updates = parts.nesterov, parts.passes, parts.updates
        self._losses, self._executor = parts.losses, parts.executor
        self._asked = self._settings.schedule_of(self.stages)
        self._warm_up = self._settings.warm_up_of(self.stages)
        # Steps since the model was new.
        self._age = 0
        self._counted = Steps()
        self._begin()
        self._guard.doing = lambda: self._executor.doing

    @property
    def cut(self) -> list[str]:
        """The names of the first layers of all stages."""
        return list(self._cut)

    @property
    def microbatches(self) -> int:
        """n_microbatches."""
        return self._settings.n_microbatches

    @property
    def schedule(self) -> str:
        """The schedule of the next step: during the warm-up a synchronous one."""
        return self._next_schedule().name

    @property
    def most_activations(self) -> int:
        """Micro-batches at once, at most so far, whose activations this stage kept."""
        return self._executor.most_held

    @property
    def most_weight_copies(self) -> int:
        """Sets of this stage's weights in memory at once, at most so far; T2's running mean is none of them."""
        return self._executor.most_copies

    def measured_delays(self) -> tuple[float, float]:
        """tau_forward and tau_backward of this stage's last update: updates between the weights of a forward or
        backward pass and the update that applies its gradient, means over the micro-batches that it took. What
        paceline.stages.delays derives from the schedule, once the pipeline is full. Raises UsageError before the first
        update.
        """
        forwards, backwards = self._executor.gaps
        if not forwards:
            raise UsageError("There was no update yet whose delays could be known.", "Take a step first, or drain().")
        return sum(forwards) / len(forwards), sum(backwards) / len(backwards)

    def step(self, batch: Any = None, target: Any = None) -> Any:
        """Train with one mini-batch; on all ranks, as often.

        - `batch`: what the first layer takes; the first stage needs it, the others ignore it.
        - `target`: what the loss takes; the last stage needs it.

        Returns a loss in float64, the same on all ranks: of this mini-batch under synchronous schedules, else of one
        some steps before (the first, in the first steps), so that nobody waits for it. With replicas it is the mean of
        theirs (the sum for loss_reduction="sum"), or under exchanges that let replicas run ahead that of this one.

        Raises UsageError for a batch or target that cannot be cut. The first step after the start, drain() or
        evaluate() raises it on all ranks before anything has changed; a later one ends the pipeline.
        """
        with self._guard():
            schedule = self._next_schedule()
            if schedule is not self._schedule:
                self._executor.run(self._schedule.drain_after(self.stage, self._forwards), None)
                self._begin()
            given = self._given(batch, target) if self._steps else self._agreed(batch, target)
            first, step = self._forwards, self._steps
            self._steps += 1
            self._counted.count()
            self._age += 1
            self._executor.run(schedule.of_microbatches(self.stage, first, self._forwards), given)
            return self._loss(self._losses.of(max(0, step - schedule.loss_lag_of(self.microbatches))))

    def drain(self) -> list[Any]:
        """Finish all backward passes and updates under way; on all ranks, after the same step.

        Returns the losses that step() has not returned yet. The next step begins anew: there is a bubble.
        """
        with self._guard():
            schedule, steps = self._schedule, self._steps
            self._executor.run(schedule.drain_after(self.stage, self._forwards), None)
            if self._clipping is not None:
                self._clipping.settle()
            self._settle()
            asked = max(0, steps - 1 - schedule.loss_lag_of(self.microbatches))
            losses = [self._loss(self._losses.of(minibatch)) for minibatch in range(asked + 1, steps)]
            self._post.finish()
            self._everyone.finish()
            self._begin()
            return losses

    def evaluate(self, batch: Any = None, target: Any = None) -> Any:
        """The loss of a batch at the newest weights, with layers in eval mode and without training; on all ranks.

        Arguments and result as of step(), for any number of rows, with replicas always of all of them. Raises
        UsageError, on all ranks and without ending the pipeline, for a batch that cannot be cut, and while
        micro-batches are under way: call drain() before.
        """
        self._refuse_under_way("evaluated")
        with self._guard():
            given, _ = self._given_any_rows(batch, target, outputs=False)
            self._losses.begin(together=True)
            with self._evaluating():
                self._executor.evaluate(given)
            loss = self._loss(self._losses.of(0))
            self._begin()
            return loss

    def predict(self, batch: Any = None) -> Any:
        """The model's output for a batch, as evaluate() computes it: on all ranks, each with all rows of its pipeline.

        `batch`: as of step(), of any number of rows. Every tensor of the output must have one row per row of the batch.
        Raises UsageError as evaluate() does, and for other outputs.
        """
        self._refuse_under_way("evaluated")
        with self._guard():
            given, rows = self._given_any_rows(batch, None, outputs=True)
            with self._evaluating():
                outputs = self._executor.predict(given)
            found = None

            def whole_output() -> tuple[dict[str, Any], Any]:
                nonlocal found
                found = joined(outputs, rows, self._tensors) if outputs else None
                return {}, None

            self._agree(whole_output, "return outputs")
            return of_last_stage(self._post, self._tensors, found)

    def close(self) -> None:
        """The end, on all ranks, before hvd.shutdown(): wait for all others to come here, too.

        Raises StageLost, which names it, if one has not done so within HOROVOD_GLOO_TIMEOUT_SECONDS.
        """
        if not self._guard.ended:
            self._refuse_under_way("closed")
            with self._guard():
                self._post.finish()
                part(self._everyone)
                self._mail.close()
            self._guard.ended = "It was closed."

    def _settle(self) -> None:  # noqa: B027
        """Apply what exchanges between replicas keep; nothing is under way in this pipeline."""

    @abstractmethod
    def _loss(self, value: float) -> Any:
        """As step() returns it."""

    @abstractmethod
    def _evaluating(self) -> AbstractContextManager[None]:
        """Around passes without training: layers behave so."""

    def _begin(self) -> None:
        """Nothing is under way; the next step is the first one of its schedule."""
        self._schedule = self._next_schedule()
        self._steps = 0
        self._executor.begin(self._schedule)
        self._losses.begin()
        if self._clipping is not None:
            self._clipping.begin(self._schedule)
        self._passes.correction = None if self._schedule.synchronous else self._correction
        if self._nesterov is not None:
            self._nesterov.on = not self._schedule.synchronous

    @property
    def _forwards(self) -> int:
        """Forward passes since the start or the last drain."""
        return self._steps * self.microbatches

    def _next_schedule(self) -> Schedule:
        return self._warm_up if self._age < self._settings.warmup_steps else self._asked

    def _given(self, batch: Any, target: Any) -> Given:
        """What this stage was given for a step. Raises UsageError for what cannot be cut."""
        return _cut([self._taken(*one, self.microbatches) for one in self._whose(batch, target)], self.microbatches)

    def _agreed(self, batch: Any, target: Any) -> Given:
        """The same where nothing is under way: what one rank refuses, all do."""
        found, _, _ = self._meet_rows(self._whose(batch, target), self.microbatches)
        return _cut(found, self.microbatches)

    def _given_any_rows(self, batch: Any, target: Any, outputs: bool) -> tuple[Given, int]:
        """What this stage was given without training, in as many micro-batches as all ranks can cut; and rows of the
        batch. `outputs`: in place of a loss, which needs a target.
        """
        of_batch, of_target = self._whose(batch, target)
        found, rows, rows_of_target = self._meet_rows([of_batch] if outputs else [of_batch, of_target], 0)
        least = rows if rows_of_target is None else min(rows, rows_of_target)
        return _cut([*found, None][:2], max(1, min(self.microbatches, least))), rows

    def _whose(self, batch: Any, target: Any) -> list[tuple[Any, str, int]]:
        return [(batch, "batch", 0), (target, "target", self.stages - 1)]

    def _meet_rows(
        self, given: list[tuple[Any, str, int]], least: int
    ) -> tuple[list[Microbatches | None], int, int | None]:
        """Return this stage's batch and target, and how many rows those of its pipeline have.

        Raises UsageError on all ranks for what one of them cannot cut, and for targets that have not one row, or
        several, for each row of the batch.
        """
        found: list[Microbatches | None] = []

        def rows() -> tuple[dict[str, Any], Any]:
            found.extend(self._taken(*one, least) for one in given)
            return {}, [None if one is None else one.rows for one in found]

        everyones = self._agree(rows, "take its part of the batch")
        pipelines = [self._grid.pipeline(replica) for replica in range(self._grid.replicas)]
        pairs = [(everyones[ranks[0]][0], everyones[ranks[-1]][1:]) for ranks in pipelines]
        with self._guard.refusing():
            for of_batch, of_target in pairs:
                if of_target and (of_target[0] % of_batch if of_batch else of_target[0]):
                    raise UsageError(
                        f"The batch of stage 0 has {of_batch} rows, the target of stage {self.stages - 1} has "
                        f"{of_target[0]}: expected as many, or a multiple.",
                        "Give all stages the same part of the data.",
                    )
        of_batch, of_target = pairs[self.replica]
        return found, of_batch, of_target[0] if of_target else None

    def _taken(self, value: Any, whose: str, stage: int, least: int) -> Microbatches | None:
        """A batch or target of at least so many rows, on the `stage` that needs it."""
        if stage != self.stage:
            return None
        return Microbatches(value, least, f"The {whose} of stage {stage}", self._tensors)

    def _refuse_under_way(self, what: str) -> None:
        if self._forwards % self._schedule.microbatches or (self._steps and not self._schedule.synchronous):
            raise UsageError(
                f"{self._guard.who.capitalize()} was to be {what} with micro-batches under way, after {self._steps} "
                "steps.",
                "Call drain() before, on all ranks.",
            )


def _cut(found: Sequence[Microbatches | None], count: int) -> Given:
    return Given(count, *(None if one is None else one.cut(count) for one in found))


def _tried(asked: Callable[[], dict[str, Any]]) -> dict[str, Any] | Exception:
    try:
        return asked()
    except Exception as error:
        return error
