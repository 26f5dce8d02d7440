"""Base of hvd.Pipeline in all frameworks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from paceline import renamed
from paceline.errors import UsageError
from paceline.native.communicator import Communicator
from paceline.native.library import loaded
from paceline.native.world import world
from paceline.stages.execution import posting
from paceline.stages.execution.batches import Microbatches
from paceline.stages.execution.evaluation import joined, of_last_stage
from paceline.stages.execution.executor import Given
from paceline.stages.execution.grid import Grid, PipelineCommunicator
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
    """Number of pipelines so far, by process set, which separates their messages."""


class StagedTraining(ABC):
    """Training steps of a schedule on one stage. A subclass builds its stage between `_meet` and `_equip`.

    `library`: "torch" or "tensorflow", whose Horovod connects the ranks of `process_set` if there is no `communicator`.
    """

    _settings: Settings
    # Names of the first layers of all stages.
    _cut: list[str]

    def __new__(cls, *_: Any, **given: Any) -> StagedTraining:
        """Raise UsageError for a keyword argument of Paceline 0.1 that has been renamed."""
        renamed.refuse_keywords(cls.__name__, given)
        return super().__new__(cls)

    def __init__(self, library: str, process_set: Any, communicator: posting.Communicator | None) -> None:
        set_id = process_set.process_set_id
        self._communicator: posting.Communicator = (
            Communicator(loaded(library), set_id) if communicator is None else communicator
        )
        self._guard = Guard(self._communicator)
        self._take_place(1)
        self._own_connections = None if communicator is not None else (loaded(library), set_id)

    def _take_place(self, replicas: int) -> None:
        """Divide the ranks into `replicas` pipelines. Raises UsageError if that is impossible."""
        self._grid = Grid(self._communicator.size, replicas)
        self.stage, self.replica = self._grid.place(self._communicator.rank)
        self.stages, self.replicas = self._grid.stages, replicas
        if replicas > 1:
            self._guard.who = f"stage {self.stage} of replica {self.replica}"

    def _meet(self, asked: Callable[[], dict[str, Any]]) -> None:
        """Wait for all ranks to return the same from `asked`; raise on all ranks if it raises on one."""
        before = 0
        if self._own_connections is not None:
            library, set_id = self._own_connections
            before = world(library).of(_Made)[set_id]
        meet(Post(self._communicator), _tried(lambda: {**asked(), "pipelines before": before}))
        if self._own_connections is not None:
            world(library).of(_Made)[set_id] = before + 1
        # Each pipeline has its own range of tags.
        first_tag = before * len(posting.Tag)
        self._everyone = Post(self._communicator, first_tag)
        self._post = self._everyone
        if self.replicas > 1:
            self._post = Post(PipelineCommunicator(self._communicator, self._grid.pipeline(self.replica)), first_tag)

    def _agree(self, asked: Callable[[], tuple[dict[str, Any], Any]], doing: str = "build its stage") -> list[Any]:
        """Wait for all ranks, as `_meet`; return the own values of all ranks.

        `asked` returns the values that must be equal, and this rank's own value. `doing`: see `meet`.
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
        """Return the losses; `together`: steps return the losses of all replicas, not only of this one."""
        return Losses(self._everyone, self._grid, self._settings.loss_reduction == "mean", together)

    def _equip(self, tensors: Tensors, parts: Parts) -> None:
        """Complete the construction with the parts of the stage."""
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
        """Names of the first layers of all stages."""
        return list(self._cut)

    @property
    def microbatches(self) -> int:
        """The argument n_microbatches."""
        return self._settings.n_microbatches

    @property
    def schedule(self) -> str:
        """Name of the next step's schedule; during warm-up, a synchronous one."""
        return self._next_schedule().name

    @property
    def most_activations(self) -> int:
        """Largest number so far of micro-batches whose activations this stage kept at once."""
        return self._executor.most_held

    @property
    def most_weight_copies(self) -> int:
        """Largest number so far of sets of this stage's weights in memory at once, without T2's running mean."""
        return self._executor.most_copies

    def measured_delays(self) -> tuple[float, float]:
        """Return tau_forward and tau_backward of this stage's last update.

        They are the updates between the weights of a forward (backward) pass and the update that applies its gradient,
        means over the micro-batches of the update. Once the pipeline is full, paceline.stages.delays derives the same
        from the schedule.

        Raises:
            UsageError: before the first update.
        """
        forwards, backwards = self._executor.gaps
        if not forwards:
            raise UsageError("There was no update yet whose delays could be known.", "Take a step first, or drain().")
        return sum(forwards) / len(forwards), sum(backwards) / len(backwards)

    def step(self, batch: Any = None, target: Any = None) -> Any:
        """Train with one mini-batch; all ranks must call it.

        Args:
            batch: input of the first layer; the first stage needs it, the others ignore it.
            target: argument of the loss; the last stage needs it, the others ignore it.

        Returns:
            A loss in float64, equal on all ranks: of this mini-batch under synchronous schedules, else of an earlier
            one (of the first one, in the first steps), so that no rank waits for it. With replicas it is the mean over
            them (the sum for loss_reduction="sum"); under exchanges that let replicas run ahead, it is this replica's
            loss.

        Raises:
            UsageError: for a batch or target that cannot be cut. In the first step after the start, drain() or
                evaluate(), all ranks raise it before anything has changed; in a later step it ends the pipeline.
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
        """Finish all backward passes and updates in flight. All ranks must call it after the same step.

        The next step starts with an empty pipeline, which costs a bubble.

        Returns:
            The losses that step() has not returned yet.
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
        """Return the loss of a batch at the newest weights, with layers in eval mode and without training.

        All ranks must call it. The batch may have any number of rows; with replicas, the loss is always that of all
        replicas.

        Args:
            batch: as of step().
            target: as of step().

        Returns:
            The loss, as step() returns it.

        Raises:
            UsageError: on all ranks and without ending the pipeline, for a batch that cannot be cut, and while
                micro-batches are in flight: call drain() before.
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
        """Return the model's output for a batch on all ranks; each has all rows of its pipeline.

        It is computed as in evaluate(). Every tensor of the output must have one row per row of the batch.

        Args:
            batch: as of step(), with any number of rows.

        Raises:
            UsageError: as evaluate(), and for other outputs.
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
        """End the pipeline on all ranks, before hvd.shutdown(), after waiting for all ranks to call it.

        Raises:
            StageLost: if a rank, which it names, has not called it within HOROVOD_GLOO_TIMEOUT_SECONDS.
        """
        if not self._guard.ended:
            self._refuse_under_way("closed")
            with self._guard():
                self._post.finish()
                part(self._everyone)
                self._communicator.close()
            self._guard.ended = "It was closed."

    def _settle(self) -> None:  # noqa: B027
        """Apply updates kept by exchanges between replicas; nothing is in flight in this pipeline."""

    @abstractmethod
    def _loss(self, value: float) -> Any:
        """Return the loss in the type that step() returns."""

    @abstractmethod
    def _evaluating(self) -> AbstractContextManager[None]:
        """Return a context for passes without training, which sets the layers' mode."""

    def _begin(self) -> None:
        """Start the next schedule; nothing is in flight."""
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
        """Number of forward passes since the start or the last drain."""
        return self._steps * self.microbatches

    def _next_schedule(self) -> Schedule:
        return self._warm_up if self._age < self._settings.warmup_steps else self._asked

    def _given(self, batch: Any, target: Any) -> Given:
        """Return this stage's arguments of a step. Raises UsageError for data that cannot be cut."""
        return _cut([self._taken(*one, self.microbatches) for one in self._whose(batch, target)], self.microbatches)

    def _agreed(self, batch: Any, target: Any) -> Given:
        """Return this stage's arguments if nothing is in flight; if one rank refuses its data, all raise."""
        found, _, _ = self._meet_rows(self._whose(batch, target), self.microbatches)
        return _cut(found, self.microbatches)

    def _given_any_rows(self, batch: Any, target: Any, outputs: bool) -> tuple[Given, int]:
        """Return this stage's arguments without training, and the rows of the batch.

        They have as many micro-batches as all ranks can cut. `outputs`: return outputs instead of a loss, which needs a
        target.
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
        """Return this stage's batch and target, and the numbers of rows of its pipeline's batch and target.

        Raises UsageError on all ranks for data that one of them cannot cut, and for targets whose rows are not a
        multiple of the batch's.
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
        """Return a batch or target of at least `least` rows, on the `stage` that needs it."""
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
