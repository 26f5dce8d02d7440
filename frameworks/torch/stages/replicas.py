"""Exchange between the replicas of a stage: gradients, as in hvd.DistributedOptimizer, and initial weights."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from horovod.common import process_sets

from paceline.arguments import check_choice, choice_asked, exchange_asked
from paceline.errors import UsageError
from paceline.option import nearest
from paceline.registry.exchanges import declaration_of
from paceline.stages.execution.grid import Grid
from paceline.stages.execution.settings import Settings
from paceline.stages.execution.updates import Updates
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.optimizer.distributed import DistributedOptimizer
from paceline.torch.optimizer.wrapper import WrappedOptimizer
from paceline.torch.stages.layers import Stage
from paceline.torch.stages.no_scaler import refuse_scalers
from paceline.torch.stages.step import rates_times
from paceline.torch.state.broadcasts import broadcast_among

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]
_PLAIN = horovod.Compression.none
# Arguments of DistributedOptimizer that a pipeline sets itself.
_OURS = ("optimizer", "named_parameters", "backward_passes_per_step", "op", "num_groups", "process_set")
_SETTINGS = tuple(inspect.signature(Settings).parameters)
OPTIONS = tuple(name for name in inspect.signature(DistributedOptimizer).parameters if name not in _OURS)


class Exchanging:
    """Exchange of a stage with its replicas; `options`: DistributedOptimizer's, as the user gave them.

    `together`: True if replicas wait for each other in every update anyway. `terms`: for comparison with other ranks.
    With one replica the options are only checked. Raises UserError for unknown or incompatible options, and for
    replicas without `connected` ranks of Horovod.
    """

    def __init__(self, options: Mapping[str, Any], replicas: int, connected: bool) -> None:
        for name in options:
            if name not in OPTIONS:
                raise UsageError(
                    f"hvd.Pipeline has no argument {name}. {nearest(name, [*OPTIONS, *_SETTINGS])}",
                    f"Of hvd.DistributedOptimizer's it takes {', '.join(OPTIONS)}.",
                )
        if replicas > 1 and not connected:
            raise UsageError(
                f"replicas={replicas} was given with communicator=.", "Replicas are ranks of Horovod: leave it out."
            )
        self._options = dict(options)
        self._set: Any = None
        self.together = True
        self.terms: dict[str, Any] = {}
        if options or replicas > 1:
            asked = exchange_asked(options.get("exchange"))
            if asked.sharded:
                word = declaration_of(asked).word
                raise UsageError(
                    f"hvd.Pipeline was given the exchange {word}, under which a replica has no gradients of another's "
                    "parameters.",
                    f'Use exchange="sync" or another one than {word} for replicas of stages.',
                )
            choice = choice_asked(*(options.get(name) for name in ("codec", "error_feedback", "collective")))
            check_choice(choice, options.get("compression", _PLAIN), _PLAIN)
            self.together = asked.ranks_meet and asked.exchanges_gradients
            self.terms = {"exchange": repr(asked), "how gradients travel": str(choice)}

    def join(self, grid: Grid, stage: int, process_set: Any) -> None:
        """Find or make the process set of this stage's replicas. Call it on all ranks of `process_set`."""
        if grid.replicas > 1:
            self._set = set_of([grid.replicas_of(one) for one in range(grid.stages)], stage, process_set)

    def share(self, module: torch.nn.Module) -> None:
        """Broadcast parameters and buffers from the first replica of a stage to the others."""
        if self._set is not None:
            held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            broadcast_among([(f"stage.{name}", one) for name, one in held.items()], self._set)

    def around(self, make: MakeOptimizer, stage: Stage, mean: bool) -> MakeOptimizer:
        """Wrap `make` so that its optimizer uses the mean, or the sum, of the gradients of all replicas of `stage`."""

        def made(parameters: Any) -> torch.optim.Optimizer:
            optimizer = make(parameters)
            if type(optimizer) is WrappedOptimizer or type(optimizer).__module__ == horovod.optimizer.__name__:
                raise UsageError(
                    "optimizer returned one of hvd.DistributedOptimizer, which averages gradients of all ranks: those "
                    "of a pipeline have different weights.",
                    "Return the optimizer within. Replicas of a stage average by hvd.Pipeline(replicas=...).",
                )
            if not isinstance(optimizer, torch.optim.Optimizer):
                return optimizer
            if self._set is not None:
                op = horovod.Average if mean else horovod.Sum
                named = zip(stage.names, stage.parameters, strict=True)
                optimizer = DistributedOptimizer(optimizer, named, op=op, process_set=self._set, **self._options)
            refuse_scalers(optimizer)
            return optimizer

        return made


def combine(optimizer: torch.optim.Optimizer | None) -> None:
    """Wait until the gradients of all replicas are combined, if they are exchanged at all."""
    if type(optimizer) is WrappedOptimizer:
        optimizer.synchronize()


def drain(optimizer: torch.optim.Optimizer | None, updates: Updates, synchronous: bool) -> None:
    """Apply the updates whose gradients an exchange has in flight."""
    if type(optimizer) is WrappedOptimizer:

        def apply(factor: float) -> None:
            with rates_times(optimizer, factor):
                optimizer.drain()

        updates.between(apply, synchronous)


def real_weights(optimizer: torch.optim.Optimizer | None) -> contextlib.AbstractContextManager[None]:
    """Context with the weights that updates produced, not an exchange's prediction of later weights."""
    return optimizer.real_weights() if type(optimizer) is WrappedOptimizer else contextlib.nullcontext()


def set_of(groups: Sequence[Sequence[int]], own: int, among: Any) -> Any:
    """Return the process set of `groups[own]`, made of ranks of `among`.

    All ranks of the world call this with the same groups. Existing sets are reused. Raises UsageError if a set does not
    exist and cannot be made.
    """
    ranks = _all_sets()[among.process_set_id]
    members = [sorted(ranks[one] for one in group) for group in groups]
    return [_set_of(each, members, len(ranks)) for each in members][own]


def _set_of(ranks: list[int], all_of_them: list[list[int]], among: int) -> Any:
    for known, of in _all_sets().items():
        if sorted(of) == ranks:
            found = horovod.ProcessSet(ranks)
            found.process_set_id = known
            return found if known else horovod.global_process_set
    try:
        # All ranks of the world must take part: the ranks of a set alone cannot make others.
        if among == horovod.size():
            return horovod.add_process_set(ranks)
        why = "a pipeline on a process set makes no others"
    except ValueError as error:
        why = str(error)
    listed = ", ".join(f"hvd.ProcessSet({each})" for each in all_of_them)
    raise UsageError(
        f"The replicas of a stage are a process set of ranks {ranks}, which is not there: {why}",
        f"Start all ranks with HOROVOD_DYNAMIC_PROCESS_SETS=1, or call hvd.init(process_sets=[{listed}]).",
    )


def _all_sets() -> dict[int, list[int]]:
    """Ranks of all process sets, by set number."""
    return {number: list(ranks) for number, ranks in process_sets._basics._get_process_set_ids_and_ranks().items()}
