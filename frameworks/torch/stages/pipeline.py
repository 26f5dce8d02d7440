"""hvd.Pipeline."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.stages.execution import posting
from paceline.stages.execution.cut import AUTO, first_layers
from paceline.stages.execution.finish import Loss
from paceline.stages.execution.pipeline import StagedTraining
from paceline.stages.execution.settings import Settings
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.stages import checkpoint
from paceline.torch.stages.correction import load
from paceline.torch.stages.layers import Layer, Stage, free, layers_of, refuse_shared
from paceline.torch.stages.parts import assembled
from paceline.torch.stages.replicas import Exchanging, MakeOptimizer, drain, real_weights
from paceline.torch.stages.tensors import StageTensors


class Pipeline(StagedTraining):
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
    - `annealing_steps`: for so many asynchronous updates learning rates are lower where gradients are late (T1); 0:
      never.
    - `discrepancy`: D in (0, 1), for backward passes at corrected weights (T2); None: off.
    - `nesterov`: Nesterov's momentum on the last stage, in (0, 1), and nearer to 0.99 on earlier ones (AsyncPP); None:
      off, as during the warm-up. The optimizer must have no momentum of its own: betas=(0, 0.999) of Adam.
    - `update_every`: how many mini-batches an update takes, their mean. With n_microbatches * update_every >= 2P - 1 no
      weight is more than one version old (bounded drift).
    - `device`: where this stage computes; None: where its layers are.
    - `process_set`: whose ranks are the stages, in the order of ranks.
    - `replicas`: pipelines side by side, each with a replica of every stage and a batch of its own: rank = stage *
      replicas + replica. They begin with the weights of replica 0. Gradients of a stage are averaged over its replicas
      (added up for loss_reduction="sum") by a process set, as hvd.DistributedOptimizer does, whose `exchange`, `codec`,
      `error_feedback`, `collective`, `compression`, `fusion` and others are taken here as well.
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
        nesterov: float | None = None,
        update_every: int = 1,
        device: torch.device | str | None = None,
        process_set: Any = horovod.global_process_set,
        replicas: int = 1,
        mail: posting.Mail | None = None,
        **exchanging: Any,
    ) -> None:
        super().__init__("torch", process_set, mail)
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
                nesterov,
                update_every,
                replicas,
            )
            self._take_place(replicas)
            self._exchanging = Exchanging(exchanging, replicas, mail is None)
            layers.extend(layers_of(model))
            firsts.extend(first_layers(layers, self.stages, stages, costs))
            refuse_shared(layers, firsts)
            return {**self._settings.terms(), **self._exchanging.terms, **_described(layers, firsts)}

        self._meet(asked)
        self._exchanging.join(self._grid, self.stage, process_set)
        self._whole_names = [name for layer in layers for name in _parameter_names(layer)]
        self._cut = [layers[first].name for first in firsts]
        bounds = [*firsts, len(layers)]
        own = range(bounds[self.stage], bounds[self.stage + 1])
        free([layer for number, layer in enumerate(layers) if number not in own])
        counts = _counts(layers, bounds)
        with self._guard():
            if device is not None:
                for number in own:
                    layers[number].module.to(device)
            self._stage = Stage([layers[number] for number in own])
            self._exchanging.share(self._stage.module)
            tensors = StageTensors(_device_of(self._stage, device))
            losses = self._losses_of(self._exchanging.together)
            make = self._exchanging.around(optimizer, self._stage, self._settings.loss_reduction == "mean")
            self._equip(
                tensors, assembled(self._post, losses, self._settings, self._stage, make, loss, tensors, counts)
            )

    @property
    def module(self) -> torch.nn.Sequential:
        """The layers of this stage."""
        return self._stage.module

    @property
    def names(self) -> list[str]:
        """Of this stage's parameters, in the whole model and in the order of `module.parameters()`."""
        return list(self._stage.names)

    def state_dict(self) -> dict[str, Any]:
        """The state of this stage, with the names of the whole model: "model", "optimizer" and "pipeline".

        With replicas also what this rank's exchange has in flight, and error feedback keeps. Raises UsageError while
        micro-batches are under way: call drain() before, on all ranks.
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
        """On all ranks: the state of all stages, on rank 0; None on the others.

        "model" and "optimizer" are those of the plain model and of one optimizer of all its parameters, which load
        them; so does a pipeline of any number of stages. With replicas the state is that of replica 0, and "exchange"
        what error feedback keeps on all ranks, which goes on with the same cut and replicas. Raises UsageError as of
        state_dict, and while the exchange between replicas has gradients in flight.
        """
        own = self.state_dict()
        checkpoint.refuse_in_flight(own["optimizer"], self._guard.who)
        with self._guard():
            return checkpoint.consolidated(self._everyone, self._grid, self._cut, own)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `consolidate` returned, on all ranks, or from this stage's own state of the same cut.

        A plain {"model": ..., "optimizer": ...} will do; without "optimizer" that stays as it is. Raises UsageError for
        states that lack something of this stage, or have it in another shape, and while micro-batches are under way;
        nothing has changed then.
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
            load(self._correction.deltas, [saved["pipeline"]["deltas"].get(name) for name in self._stage.names])
        if self._nesterov is not None:
            load(self._nesterov.velocities, [saved["pipeline"]["velocities"].get(name) for name in self._stage.names])
        self._begin()

    def _settle(self) -> None:
        drain(self.optimizer, self._updates, self._schedule.synchronous)

    def _loss(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64)

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        modes = [(one, one.training) for one in self.module.modules()]
        self.module.eval()
        try:
            with real_weights(self.optimizer):
                yield
        finally:
            for one, training in modes:
                one.training = training


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
