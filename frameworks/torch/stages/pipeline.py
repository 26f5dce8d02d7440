"""hvd.Pipeline."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from paceline.errors import UsageError
from paceline.pipeline_options import warn_without_effect
from paceline.stages.execution import posting
from paceline.stages.execution.cut import AUTO
from paceline.stages.execution.evaluation import metrics_of_last_stages
from paceline.stages.execution.finish import Loss
from paceline.stages.execution.pipeline import StagedTraining
from paceline.stages.execution.settings import Settings
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.weighing import checked as checked_weight
from paceline.torch.optimizer.wrapper import WrappedOptimizer
from paceline.torch.stages import checkpoint
from paceline.torch.stages.correction import load
from paceline.torch.stages.cutting import TIME, Cutting, always_trains, described, measured, refuse_twice
from paceline.torch.stages.layers import AnyLayer, Stage
from paceline.torch.stages.metrics import Metric, Metrics, checked
from paceline.torch.stages.models import Cut, layers_of_model
from paceline.torch.stages.parts import assembled
from paceline.torch.stages.random_numbers import RandomNumbers
from paceline.torch.stages.replicas import Exchanging, MakeOptimizer, drain, real_weights
from paceline.torch.stages.tensors import StageTensors
from paceline.torch.stages.ties import Ties


def _check_functions(optimizer: Any, loss: Any) -> None:
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        kind = type(optimizer).__name__
        raise UsageError(
            f"optimizer is a {kind}: expected a function of a stage's parameters that returns their optimizer.",
            f"Give optimizer=lambda parameters: torch.optim.{kind if kind in dir(torch.optim) else 'SGD'}(parameters, "
            "lr=...).",
        )
    if not callable(loss):
        raise UsageError(
            f"loss={loss!r}: expected a function of the model's output and the target.",
            "Give torch.nn.functional.mse_loss, for example.",
        )


class Pipeline(StagedTraining):
    """Trains a model that is cut into stages, one per rank; several micro-batches are in flight at a time.

        model = nn.Sequential(...)  # the same on all ranks
        pipeline = hvd.Pipeline(model, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
                                loss=nn.functional.cross_entropy, schedule="pipemare", n_microbatches=4)
        for batch, target in data:
            loss = pipeline.step(batch, target)
        pipeline.drain()

    Schedules, their cost and when to use which: docs/methods/stages.md.

    With one rank every schedule is plain training. Layers see one micro-batch at a time, as with gradient accumulation:
    batch norm has the statistics of micro-batches.

    Args:
        model: an nn.Sequential or a list of modules. Layers pass on tensors, or structures of them
            (docs/methods/stages.md). Each rank keeps the layers of its own stage, with the weights they were built with
            (seed all ranks alike), and frees the others, which become layers without memory (device "meta"). Or a list
            of functions without arguments that build the modules; each rank calls those of its own stage. Or a Pipe or
            PipelineStage of torch.distributed.pipelining. Or another module, which is traced with `sample` and cut at
            the submodules named by `stages`.
        optimizer: called with the parameters of this stage, returns their optimizer; `pipeline.optimizer` for
            schedulers.
        loss: called on the last stage with the model's output and the target of a micro-batch.
        n_microbatches: number of micro-batches of a batch, cut along its first dimension as evenly as possible.
            Required.
        schedule: "gpipe", "1f1b", "pipedream", "2bw", "pipemare" or "pipemare_eager".
        stages: "auto", balanced by `costs` (numbers, one per layer) or by parameters; "time", balanced by the time of
            layers for `sample` on rank 0, forward and backward; or the first layers of stages 1 .. P-1, as numbers or
            names.
        sample: one micro-batch of input for the first layer, for stages="time" and for tracing.
        metrics: functions by name, each called with the output and the target of a micro-batch; evaluate() returns
            their means over rows.
        loss_reduction: how `loss` combines its rows, "mean" or "sum". Micro-batches are weighted so that their losses
            and gradients add up to those of the batch.
        max_norm: clip gradients by the norm over all stages. Asynchronous schedules use norms of earlier stages from
            earlier mini-batches: paceline.stages.execution.clipping.
        recompute: keep only a stage's inputs, and compute again before the backward pass.
        warmup_steps: number of synchronous steps at the beginning (PipeMare's T3).
        annealing_steps: number of asynchronous updates with lower learning rates where gradients are late (T1); 0
            disables it.
        correction: D in (0, 1), for backward passes at corrected weights (T2); None disables it.
        nesterov: Nesterov's momentum on the last stage, in (0, 1), and nearer to 0.99 on earlier ones (AsyncPP); None,
            and during the warm-up: off. The optimizer must have no momentum of its own: betas=(0, 0.999) of Adam.
        update_every: number of mini-batches of an update, which uses their mean. With n_microbatches * update_every >=
            2P - 1 no weight is more than one version old (bounded drift).
        device: device of this stage; None: where its layers are.
        process_set: its ranks are the stages, in the order of ranks.
        replicas: number of parallel pipelines, each with a replica of every stage and its own batches: rank = stage *
            replicas + replica. They begin with the weights of replica 0. Gradients of a stage are averaged over its
            replicas (summed for loss_reduction="sum") over a process set, as in hvd.DistributedOptimizer. Its
            `exchange`, `codec`, `error_feedback`, `collective`, `compression`, `fusion` and others are accepted here as
            well.
        communicator: transport of messages; None: Horovod's connections.

    Raises:
        UsageError: (a ValueError) on all ranks, for models that cannot be cut, meaningless settings, and settings that
            differ between ranks.
        StageFailed: on all other stages, with the traceback, if one stage raises.
    """

    def __init__(
        self,
        model: Any,
        optimizer: MakeOptimizer,
        loss: Loss,
        n_microbatches: int = 0,
        schedule: str = "1f1b",
        stages: str | Sequence[int | str] = AUTO,
        *,
        costs: Sequence[float] | None = None,
        sample: Any = None,
        metrics: Mapping[str, Metric] | None = None,
        loss_reduction: str = "mean",
        max_norm: float | None = None,
        recompute: bool = False,
        warmup_steps: int = 0,
        annealing_steps: int = 0,
        correction: float | None = None,
        nesterov: float | None = None,
        update_every: int = 1,
        device: torch.device | str | None = None,
        process_set: Any = horovod.global_process_set,
        replicas: int = 1,
        communicator: posting.Communicator | None = None,
        **exchanging: Any,
    ) -> None:
        super().__init__("torch", process_set, communicator)
        layers: list[AnyLayer] = []
        cuts: list[Cut] = []
        functions: dict[str, Metric] = {}

        def asked() -> dict[str, Any]:
            _check_functions(optimizer, loss)
            functions.update(checked(metrics))
            self._exchanging = Exchanging(exchanging, replicas, communicator is None)
            self._settings = Settings(
                schedule,
                n_microbatches,
                stages,
                costs,
                warmup_steps,
                annealing_steps,
                correction,
                max_norm,
                loss_reduction,
                recompute,
                nesterov,
                update_every,
                replicas,
            )
            self._take_place(replicas)
            found, cut = layers_of_model(model, stages, sample, self.stage, self.stages)
            layers.extend(found)
            cuts.append(cut)
            names = {"metrics": list(functions)}
            return {**self._settings.terms(), **self._exchanging.terms, **names, **described(layers)}

        self._weight: float | None = None
        self._meet(asked)
        if self.replicas == 1 and self._communicator.rank == 0:
            warn_without_effect()
        if stages == TIME:
            first = self._communicator.rank == 0
            costs = self._agree(lambda: ({}, measured(layers, sample, costs, device) if first else None))[0]
            cuts = [AUTO]
        names = self._build(layers, cuts[0], costs)
        self._exchanging.join(self._grid, self.stage, process_set)
        with self._guard():
            if device is not None:
                self._stage.module.to(device)
            self._exchanging.share(self._stage.module)
            tensors = StageTensors(_device_of(self._stage, device))
            self._metrics = Metrics(functions, tensors.rows)
            losses = self._losses_of(self._exchanging.together)
            self._ties = Ties(self._tied, self._post, tensors)
            self._ties.share()
            make = self._exchanging.around(optimizer, self._stage, self._settings.loss_reduction == "mean")
            self._equip(
                tensors,
                assembled(
                    self._post,
                    losses,
                    self._settings,
                    self._stage,
                    make,
                    self._metrics.observed(loss),
                    tensors,
                    [len(one) for one in names],
                    RandomNumbers(self._communicator.rank, self._communicator.size, tensors.device),
                    self._ties,
                ),
            )

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UsageError: each rank has a stage of the model."""
        raise UsageError(
            "A pipeline was called like a model, of which each rank has a stage only.",
            "Call step(batch, target) to train, evaluate(batch, target), or predict(batch).",
        )

    def _build(self, layers: Sequence[AnyLayer], cut: Cut, costs: Sequence[float] | None) -> list[list[str]]:
        """Build this rank's stage; return the names of all stages' parameters once all ranks have built theirs."""
        cuttings: list[Cutting] = []

        def built() -> tuple[dict[str, Any], Any]:
            synchronous = self._settings.schedule_of(self.stages).synchronous
            cuttings.append(Cutting(layers, self.stage, self.stages, cut, costs, synchronous))
            self._stage = cuttings[0].own
            return {"the cut": cuttings[0].names}, [self._stage.names, always_trains(self._stage)]

        found = self._agree(built)
        everyones = [found[rank] for rank in self._grid.pipeline(self.replica)]
        names = [own for own, _ in everyones]
        refuse_twice(names)
        cuttings[0].free_others()
        self._cut, self._tied = cuttings[0].names, cuttings[0].ties
        # The parameters of a traced model are in a different order.
        in_order = all(layer.called is None for layer in self._stage.layers)
        self._whole_names = [name for own in names for name in own] if in_order else []
        self._always_trains = next((found for _, found in everyones if found), "")
        return names

    @property
    def module(self) -> torch.nn.Sequential:
        """The layers of this stage."""
        return self._stage.module

    @property
    def names(self) -> list[str]:
        """Names of this stage's parameters in the whole model, in the order of `module.parameters()`."""
        return list(self._stage.names)

    @property
    def weight(self) -> float | None:
        """Weight of this replica's mini-batches: their rows or tokens. None: all replicas count alike.

        Set it before step(), on all ranks of the replica, and on all replicas in the same steps. Gradients and losses,
        also those of evaluate(), are then sum(w g) / sum(w) over the replicas. If all replicas have the weight 0,
        losses are NaN and gradients are zeros. It stays until another is set.

        Raises UsageError for an invalid weight, for schedules with late gradients, and for sums of losses.
        """
        return self._weight

    @weight.setter
    def weight(self, weight: Any) -> None:
        found, schedule = checked_weight(weight), self._settings.schedule_of(self.stages)
        if found is not None and not (schedule.synchronous and self._settings.loss_reduction == "mean"):
            raise UsageError(
                f"weight={weight!r} was given to a pipeline with schedule={self._settings.schedule!r} and "
                f"loss_reduction={self._settings.loss_reduction!r}.",
                'Use a synchronous schedule ("1f1b", "gpipe") and loss_reduction="mean" with weights.',
            )
        self._weight = found
        self._losses.weight = 1.0 if found is None or self.replicas == 1 else found
        if type(self.optimizer) is WrappedOptimizer:
            self.optimizer.weight = found

    def evaluate(self, batch: Any = None, target: Any = None) -> Any:
        """Return the loss of a batch (StagedTraining.evaluate); with `metrics`, a dict of both, in float64.

        Raises UsageError for models that were traced in train mode.
        """
        self._refuse_always_training()
        with self._metrics.watching():
            loss = super().evaluate(batch, target)
        if not self._metrics:
            return loss
        with self._guard():
            found = metrics_of_last_stages(self._everyone, self._grid, self._metrics.result())
        return {"loss": loss, **{name: self._loss(one) for name, one in found.items()}}

    def predict(self, batch: Any = None) -> Any:
        """Return outputs (StagedTraining.predict). Raises UsageError for models that were traced in train mode."""
        self._refuse_always_training()
        return super().predict(batch)

    def _refuse_always_training(self) -> None:
        if self._always_trains:
            raise UsageError(
                f"{self._guard.who.capitalize()} was to be evaluated: the model was traced in train mode, and does "
                f"{self._always_trains} as in training.",
                "Load pipeline.consolidate()['model'] into the model that was traced, and evaluate that.",
            )

    def state_dict(self) -> dict[str, Any]:
        """State of this stage, with the names of the whole model: "model", "optimizer" and "pipeline".

        With replicas it includes this rank's gradients in flight and residuals of error feedback. Raises UsageError
        while micro-batches are in flight: call drain() on all ranks first.
        """
        self._refuse_under_way("saved")
        memory = {
            "deltas": [] if self._correction is None else self._correction.deltas,
            "velocities": [] if self._nesterov is None else self._nesterov.velocities,
        }
        return {
            "model": self._stage.state_dict(),
            "optimizer": checkpoint.optimizer_state(self.optimizer, self._stage),
            "pipeline": {
                "steps": self._age,
                "asynchronous": self._updates.asynchronous,
                **{name: dict(zip(self._stage.names, kept, strict=False)) for name, kept in memory.items()},
            },
        }

    def consolidate(self) -> dict[str, Any] | None:
        """Return the state of all stages on rank 0, None on the others. Call it on all ranks.

        "model" and "optimizer" can be loaded into the plain model and one optimizer of all its parameters, and into a
        pipeline with any number of stages. With replicas the state is that of replica 0. "exchange" then holds the
        residuals of all ranks, which are used with the same cut and replicas. Raises UsageError as state_dict does, and
        while the exchange between replicas has gradients in flight.
        """
        own = self.state_dict()
        checkpoint.refuse_in_flight(own["optimizer"], self._guard.who)
        with self._guard():
            return checkpoint.consolidated(self._everyone, self._grid, self._cut, own)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the result of `consolidate` on all ranks, or from this stage's own state of the same cut.

        A plain {"model": ..., "optimizer": ...} is enough; without "optimizer" the optimizer stays as it is. Raises
        UsageError while micro-batches are in flight, and for states that lack a tensor of this stage or have it in
        another shape. Nothing has changed then.
        """
        self._refuse_under_way("loaded")
        saved = checkpoint.complete(state)
        self._stage.check(saved["model"])  # all before anything changes
        kept = checkpoint.kept_by_exchange(saved, self._cut, self._grid, self.stage, self.replica)
        checkpoint.load_optimizer_state(self.optimizer, self._stage, saved["optimizer"], self._whole_names, kept)
        self._stage.load_state_dict(saved["model"])
        self._age = saved["pipeline"]["steps"]
        self._updates.asynchronous = saved["pipeline"]["asynchronous"]
        if self._correction is not None:
            self._correction.load([saved["pipeline"]["deltas"].get(name) for name in self._stage.names])
        if self._nesterov is not None:
            load(self._nesterov.velocities, [saved["pipeline"]["velocities"].get(name) for name in self._stage.names])
        self._begin()

    def _settle(self) -> None:
        drain(self.optimizer, self._updates, self._schedule.synchronous)
        self._share_tied()

    def _share_tied(self) -> None:
        """Update copies of tied weights after an exchange between replicas changed them outside a step."""
        if self.replicas > 1:
            self._ties.share()

    def _loss(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        modes = [(one, one.training) for one in self.module.modules()]
        self.module.eval()
        try:
            with real_weights(self.optimizer):
                self._share_tied()
                yield
            self._share_tied()
        finally:
            for one, training in modes:
                one.training = training


def _device_of(stage: Stage, asked: torch.device | str | None) -> torch.device:
    if asked is not None:
        return torch.device(asked)
    tensors = [*stage.module.parameters(), *stage.module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")
