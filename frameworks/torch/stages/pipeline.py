"""hvd.Pipeline."""

from __future__ import annotations

import contextlib
import itertools
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.native.library import loaded, world
from paceline.native.mail import Mail, MailError
from paceline.stages.schedule import Schedule
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.stages.execution import posting
from paceline.torch.stages import checkpoint
from paceline.stages.execution.batches import Microbatches
from paceline.stages.execution.cut import AUTO, first_layers
from paceline.stages.execution.executor import Given, Loss
from paceline.torch.stages.layers import Layer, Stage, free, layers_of, refuse_shared
from paceline.torch.stages.parts import MakeOptimizer, assembled
from paceline.stages.execution.posting import Post
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.terms import meet

# How many pipelines there were in a world of Horovod, by process set: their messages are kept apart.
_made: dict[int, tuple[object, int]] = {}


class Pipeline:
    """Trains a model that is cut into stages, one per rank; micro-batches pass through them at the same time.

        model = nn.Sequential(...)  # the same on all ranks
        pipeline = hvd.Pipeline(model, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
                                loss=nn.functional.cross_entropy, schedule="pipemare", n_microbatches=4)
        for batch, target in data:
            loss = pipeline.step(batch, target)
        pipeline.drain()

    Schedules, what they cost and when to use which: docs/stages.md.

    - `model`: an nn.Sequential or a list of modules. Layers hand on a tensor, or a tuple or list of tensors. Each rank
      keeps the layers of its own stage, with the weights that it built them with (seed all ranks alike), and frees the
      others, which become layers without memory (device "meta").
    - `optimizer`: called with the parameters of this stage, returns their optimizer; `pipeline.optimizer` for
      schedulers.
    - `loss`: called on the last stage with the model's output and the target of a micro-batch.
    - `n_microbatches`: how many a batch is cut into, by its first dimension, as evenly as it goes.
    - `schedule`: "gpipe", "1f1b", "pipedream", "2bw" or "pipemare".
    - `stages`: "auto", balanced by `costs` (numbers, one per layer) or by parameters; or the first layers of stages
      1 .. P-1, as numbers or names.
    - `loss_reduction`: what `loss` is of its rows, "mean" or "sum". Micro-batches are weighted so that their losses,
      and gradients, add up to those of the batch.
    - `max_norm`: clip gradients by the norm over all stages. Asynchronous schedules take norms of earlier stages from
      some mini-batches before: paceline.stages.execution.clipping.
    - `recompute`: keep a stage's inputs alone, and compute again before the backward pass.
    - `warmup_steps`: so many steps first are synchronous (PipeMare's T3).
    - `annealing_steps`: for so many asynchronous steps learning rates are lower where gradients are late (T1); 0:
      never.
    - `discrepancy`: D in (0, 1), for backward passes at corrected weights (T2); None: off.
    - `device`: where this stage computes; None: where its layers are.
    - `process_set`: whose ranks are the stages, in the order of ranks.
    - `mail`: what messages go by; None: Horovod's connections.

    With one rank every schedule is plain training. Layers see one micro-batch at a time, as they do where a script
    accumulates gradients: batch norm has the statistics of micro-batches.

    Raises UsageError (a ValueError) on all ranks for models that cannot be cut so, settings without meaning, and ranks
    that ask for different ones. A stage that raises ends all stages: theirs raise StageFailed with its traceback.
    """

    def __init__(
        self,
        model: Any,
        optimizer: MakeOptimizer,
        loss: Loss,
        n_microbatches: int,
        schedule: str = "1f1b",
        stages: str | Sequence[int | str] = AUTO,
        *,
        costs: Sequence[float] | None = None,
        loss_reduction: str = "mean",
        max_norm: float | None = None,
        recompute: bool = False,
        warmup_steps: int = 0,
        annealing_steps: int = 0,
        discrepancy: float | None = None,
        device: torch.device | str | None = None,
        process_set: Any = horovod.global_process_set,
        mail: posting.Mail | None = None,
    ) -> None:
        self._failed = ""
        set_id = process_set.process_set_id
        self._mail: posting.Mail = Mail(loaded("torch"), set_id) if mail is None else mail
        self.stage, self.stages = self._mail.rank, self._mail.size
        before = _made_before(set_id) if mail is None else 0
        layers: list[Layer] = []
        firsts: list[int] = []

        def asked() -> dict[str, Any]:
            self._settings = Settings(
                schedule,
                n_microbatches,
                stages,
                costs,
                warmup_steps,
                annealing_steps,
                discrepancy,
                max_norm,
                loss_reduction,
                recompute,
            )
            layers.extend(layers_of(model))
            firsts.extend(first_layers(layers, self.stages, stages, costs))
            refuse_shared(layers, firsts)
            return {**self._settings.terms(), "pipelines before": before, **_described(layers, firsts)}

        meet(Post(self._mail), _tried(asked))
        if mail is None:
            _made[set_id] = world(loaded("torch")), before + 1
        # The tags of one pipeline end where those of the next begin.
        self._post = Post(self._mail, before * len(posting.Tag))
        self._whole_names = [name for layer in layers for name in _parameter_names(layer)]
        self._cut = [layers[first].name for first in firsts]
        bounds = [*firsts, len(layers)]
        own = range(bounds[self.stage], bounds[self.stage + 1])
        free([layer for number, layer in enumerate(layers) if number not in own])
        counts = _counts(layers, bounds)
        self._doing: Callable[[], str] = lambda: "while it was built"
        with self._failing():
            if device is not None:
                for number in own:
                    layers[number].module.to(device)
            self._stage = Stage([layers[number] for number in own])
            parts = assembled(
                self._post, self._settings, self._stage, optimizer, loss, _device_of(self._stage, device), counts
            )
            self.optimizer, self._clipping, self._correction = parts.optimizer, parts.clipping, parts.correction
            self._passes, self._updates = parts.passes, parts.updates
            self._losses, self._executor = parts.losses, parts.executor
            self._asked = self._settings.schedule_of(self.stages)
            self._warm_up = self._settings.warm_up_of(self.stages)
            # Steps since the model was new.
            self._age = 0
            self._begin()
        self._doing = lambda: self._executor.doing

    @property
    def module(self) -> torch.nn.Sequential:
        """The layers of this stage."""
        return self._stage.module

    @property
    def names(self) -> list[str]:
        """Of this stage's parameters, in the whole model and in the order of `module.parameters()`."""
        return list(self._stage.names)

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
        backward pass and the update that applies its gradient, means over the mini-batch. What paceline.stages.delays
        derives from the schedule, once the pipeline is full. Raises UsageError before the first update.
        """
        forwards, backwards = self._executor.gaps
        if not forwards:
            raise UsageError("There was no update yet whose delays could be known.", "Take a step first, or drain().")
        return sum(forwards) / len(forwards), sum(backwards) / len(backwards)

    def step(self, batch: Any = None, target: Any = None) -> Tensor:
        """Train with one mini-batch; on all ranks, as often.

        - `batch`: a tensor, or a tuple or list of tensors; the first stage needs it, the others pass over it.
        - `target`: the same; the last stage needs it.

        Returns a loss in float64, the same on all ranks: of this mini-batch under synchronous schedules, else of one
        some steps before (the first, in the first steps), so that nobody waits for it.
        """
        with self._failing():
            schedule = self._next_schedule()
            if schedule is not self._schedule:
                self._begin()
            given = self._given(batch, target)
            step = self._steps
            self._steps += 1
            self._age += 1
            self._executor.run(schedule.of_step(self.stage, step), given)
            return self._losses.of(max(0, step - schedule.loss_lag))

    def drain(self) -> list[Tensor]:
        """Finish all backward passes and updates under way; on all ranks, after the same step.

        Returns the losses that step() has not returned yet. The next step begins anew: there is a bubble.
        """
        with self._failing():
            schedule, steps = self._schedule, self._steps
            self._executor.run(schedule.drain(self.stage, steps), None)
            if self._clipping is not None:
                self._clipping.settle()
            asked = max(0, steps - 1 - schedule.loss_lag)
            losses = [self._losses.of(minibatch) for minibatch in range(asked + 1, steps)]
            self._post.finish()
            self._begin()
            return losses

    def evaluate(self, batch: Any = None, target: Any = None) -> Tensor:
        """The loss of a batch at the newest weights, with layers in eval mode and without training; on all ranks.

        Arguments and result as of step(). Raises UsageError while micro-batches are under way: call drain() before.
        """
        self._refuse_under_way("evaluated")
        modes = [(one, one.training) for one in self.module.modules()]
        with self._failing():
            self.module.eval()
            try:
                self._executor.evaluate(self._given(batch, target))
            finally:
                for one, training in modes:
                    one.training = training
            self._losses.begin()
            loss = self._losses.of(0)
            self._begin()
            return loss

    def state_dict(self) -> dict[str, Any]:
        """The state of this stage, with the names of the whole model: "model", "optimizer" and "pipeline".

        Raises UsageError while micro-batches are under way: call drain() before, on all ranks.
        """
        self._refuse_under_way("saved")
        deltas = [] if self._correction is None else self._correction.deltas
        return {
            "model": self._stage.state_dict(),
            "optimizer": checkpoint.optimizer_state(self.optimizer, self._stage),
            "pipeline": {
                "steps": self._age,
                "asynchronous": self._updates.asynchronous,
                "deltas": dict(zip(self._stage.names, deltas, strict=False)),
            },
        }

    def consolidate(self) -> dict[str, Any] | None:
        """On all ranks: the state of all stages, on rank 0; None on the others.

        "model" and "optimizer" are those of the plain model and of one optimizer of all its parameters, which load
        them; so does a pipeline of any number of stages. Raises UsageError as of state_dict.
        """
        with self._failing():
            return checkpoint.consolidated(self._post, self.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `consolidate` returned, on all ranks, or from this stage's own state of the same cut.

        A plain {"model": ..., "optimizer": ...} will do; without "optimizer" that stays as it is. Raises UsageError for
        states that lack something of this stage, or have it in another shape, and while micro-batches are under way;
        nothing has changed then.
        """
        self._refuse_under_way("loaded")
        saved = checkpoint.complete(state)
        self._stage.check(saved["model"])  # all before anything changes
        checkpoint.load_optimizer_state(self.optimizer, self._stage, saved["optimizer"], self._whole_names)
        self._stage.load_state_dict(saved["model"])
        self._age = saved["pipeline"]["steps"]
        self._updates.asynchronous = saved["pipeline"]["asynchronous"]
        if self._correction is not None:
            self._correction.load([saved["pipeline"]["deltas"].get(name) for name in self._stage.names])
        self._begin()

    def close(self) -> None:
        """The end: wait until all messages have gone. On all ranks, before hvd.shutdown()."""
        if not self._failed:
            self._refuse_under_way("closed")
            self._post.finish()
            self._mail.close()
            self._failed = "It was closed."

    def _begin(self) -> None:
        """Nothing is under way; the next step is the first one of its schedule."""
        self._schedule = self._next_schedule()
        self._steps = 0
        self._executor.begin(self._schedule)
        self._losses.begin()
        if self._clipping is not None:
            self._clipping.begin(self._schedule)
        self._passes.correction = None if self._schedule.synchronous else self._correction

    def _next_schedule(self) -> Schedule:
        return self._warm_up if self._age < self._settings.warmup_steps else self._asked

    def _given(self, batch: Any, target: Any) -> Given:
        return Given(self._cut_batch(batch, "batch", 0), self._cut_batch(target, "target", self.stages - 1))

    def _cut_batch(self, value: Any, whose: str, stage: int) -> Microbatches | None:
        if stage != self.stage:
            return None
        return Microbatches(value, self._settings.n_microbatches, f"The {whose} of stage {stage}")

    def _refuse_under_way(self, what: str) -> None:
        if self._steps and not self._schedule.synchronous:
            raise UsageError(
                f"Stage {self.stage} was to be {what} with micro-batches under way, after {self._steps} steps.",
                "Call drain() before, on all ranks.",
            )

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Whatever is raised within ends this pipeline, on all ranks."""
        if self._failed:
            raise UsageError(
                f"The pipeline of stage {self.stage} has ended: {self._failed}",
                "Build another one, from the last state that was saved.",
            )
        try:
            yield
        except BaseException as error:
            self._failed = f"{type(error).__name__}: {error}".splitlines()[0]
            if not isinstance(error, MailError):
                where = f"Stage {self.stage} failed, {self._doing()}."
                # The mail may be at its end already; this error is the one to be told.
                with contextlib.suppress(MailError):
                    self._mail.alarm(f"{where}\n{traceback.format_exc()}")
            raise


def _tried(asked: Callable[[], dict[str, Any]]) -> dict[str, Any] | Exception:
    try:
        return asked()
    except Exception as error:
        return error


def _made_before(set_id: int) -> int:
    """Pipelines of this process set in this world so far."""
    known, count = _made.get(set_id, (None, 0))
    return count if known is world(loaded("torch")) else 0


def _described(layers: Sequence[Layer], firsts: Sequence[int]) -> dict[str, Any]:
    """What stages must know of each other's layers; the weights are each one's own."""
    tensors = [(name, tuple(one.shape), str(one.dtype)) for layer in layers for name, one in layer.tensors()]
    return {
        "the cut": [layers[first].name for first in firsts],
        "the number of layers": len(layers),
        "the number of tensors": len(tensors),
        "the digest of tensors' names, shapes and types": zlib.crc32(repr(tensors).encode()),
    }


def _parameter_names(layer: Layer) -> list[str]:
    return [f"{layer.name}.{name}" for name, _ in layer.module.named_parameters()]


def _counts(layers: Sequence[Layer], bounds: Sequence[int]) -> list[int]:
    """Parameters of each stage."""
    return [len(Stage(layers[begin:end]).parameters) for begin, end in itertools.pairwise(bounds)]


def _device_of(stage: Stage, asked: torch.device | str | None) -> torch.device:
    if asked is not None:
        return torch.device(asked)
    tensors = [*stage.module.parameters(), *stage.module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")
