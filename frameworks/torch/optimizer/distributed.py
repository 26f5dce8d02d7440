"""hvd.DistributedOptimizer: checks its arguments and assembles a WrappedOptimizer."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline import variables
from paceline.arguments import buckets_asked, check_choice, choice_asked, exchange_asked, warn_weight_unused
from paceline.exchange.declaration import ExchangeSettings
from paceline.exchange.sync_settings import Sync
from paceline.fusion.adapters import fuse
from paceline.horovod.shims import unmodified
from paceline.registry.exchanges import declaration_of, lists_exchanges
from paceline.registry.making import give, make
from paceline.split.exchange import SplitExchange
from paceline.split.settings import Split
from paceline.split.spans import SPANS, spans_of
from paceline.torch.errors import UsageError
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.names import ParameterNames, scope_of
from paceline.torch.optimizer.buckets import Buckets
from paceline.torch.optimizer.reduction import Reduction
from paceline.torch.optimizer.wire import TorchWire
from paceline.torch.optimizer.wrapper import WrappedOptimizer
from paceline.torch.split.shards import ELEMENTWISE
from paceline.torch.split.state import SharedState, check

# Optimizers that are wrapped at present. A second wrapper would exchange every gradient twice.
_wrappers: weakref.WeakKeyDictionary[torch.optim.Optimizer, weakref.ref[WrappedOptimizer]] = weakref.WeakKeyDictionary()


@lists_exchanges
def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    compression: Any = horovod.Compression.none,
    backward_passes_per_step: int = 1,
    op: int = horovod.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: Any = horovod.global_process_set,
    fusion: Any = None,
    exchange: str | ExchangeSettings | None = None,
    codec: str | None = None,
    error_feedback: bool | None = None,
    collective: str | None = None,
    bucket_bytes: int | None = None,
    find_unused_parameters: bool = False,
) -> torch.optim.Optimizer:
    """Make `optimizer` use gradients that are combined over all ranks.

        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        loss.backward()      # starts the exchange of each gradient as soon as it is ready
        optimizer.step()     # waits for them, then updates

    The arguments are those of horovod.torch.DistributedOptimizer, and new ones. `codec`, `error_feedback` and
    `collective` must be the same on all ranks, which compare them in their first step.

    Args:
        optimizer: any torch optimizer. It is held, not copied: it keeps its state and makes the updates.
        named_parameters: (name, parameter) for at least all parameters of the optimizer; names are the same on all
            ranks. Without them names are made from group and position.
        compression: hvd.Compression.none or .fp16, or a class with compress and decompress.
        backward_passes_per_step: sum (not average) the gradients of this number of backward passes for one update.
            step() and zero_grad() may be called after every pass: only the call that completes them acts.
        op: hvd.Average, hvd.Sum or hvd.Adasum. Adasum is Horovod's own optimizer; the parts of docs/guides/pytorch.md
            about accumulation, closures and GradScaler do not apply to it.
        gradient_predivide_factor: with Average, divide by this before the sum and by size/this after it.
        num_groups: the old name of `groups` as a number.
        groups: a number of groups, or lists of parameters; gradients of one group form one message.
        sparse_as_dense: exchange sparse gradients as dense ones; the result is sparse again.
        process_set: the ranks to combine over; on other ranks the optimizer acts alone.
        fusion: how gradients are merged into messages: the name of a policy, such as "optimal", or one of your own
            (docs/methods/fusion.md); the same on all ranks. It applies to all operations of this process and overrides
            PACELINE_FUSION. None: from that variable.
        exchange: what happens to gradients between the backward pass and the update.
            {exchanges}
        codec: encoding of gradients in messages: "none", or a codec such as "q8" (docs/methods/codecs.md). The
            optimizer gets the decoded result, the same on all ranks. Not together with `compression`. None: from
            PACELINE_CODEC.
        error_feedback: add the encoding error of a gradient to the next one; `state_dict` includes the residuals. None:
            True.
        collective: how gradients in CPU memory move between ranks: "horovod" (its own), "linear", "ring", "direct",
            "doubling" or "auto" (docs/methods/collectives.md). None: from PACELINE_COLLECTIVE; with a codec and
            neither, "direct".
        bucket_bytes: pack dense gradients in CPU memory of up to this size with their neighbours into one tensor
            (docs/methods/small_gradients.md); 0 disables it. None: 16,384 with PACELINE_FUSION=optimal, else 0.
        find_unused_parameters: leave a parameter unchanged in every update in which no rank has a gradient for it, as
            one process does; for synchronous exchanges. Costs one small operation per update. False: only until a rank
            first has a gradient; afterwards a missing one is zeros, with which weight decay and momentum still change
            the parameter.

    Returns:
        An optimizer that otherwise behaves as the given one; see WrappedOptimizer.

    Raises:
        UsageError: (a ValueError) arguments are unusable, the optimizer is wrapped already, or hvd.init() was not
            called.
        UserError: the fusion policy is unknown.
    """
    _check(optimizer, backward_passes_per_step, op, gradient_predivide_factor, process_set)
    if num_groups != 0:
        warnings.warn("num_groups is the old name of groups; use groups.", DeprecationWarning, stacklevel=2)
        groups = num_groups if groups is None else groups
    names = ParameterNames(optimizer.param_groups, named_parameters)
    policy = fuse("torch", fusion)
    asked, choice = exchange_asked(exchange), choice_asked(codec, error_feedback, collective)
    check_choice(choice, compression, horovod.Compression.none)
    _check_exchanged(asked, op, compression, gradient_predivide_factor)
    if asked.sharded:
        if groups:
            raise UsageError(
                f"groups= was given together with the exchange {declaration_of(asked).word}, which groups parameters "
                "by their owners.",
                'Leave groups= out, or use exchange="sync".',
            )
        check(optimizer, any(getattr(asked, one, False) for one in ("independent", "elementwise")))
    if find_unused_parameters and not asked.in_step:
        raise UsageError(
            f"find_unused_parameters=True was given together with the exchange {declaration_of(asked).word}: what "
            "other ranks have in an update is not known when it is made.",
            'Leave find_unused_parameters out, or use exchange="sync".',
        )
    if op == horovod.Adasum and horovod.size() > 1:
        if not asked.synchronous:
            raise UsageError(
                f"op=hvd.Adasum was given together with the exchange {declaration_of(asked).word}, which averages.",
                'Use op=hvd.Average, or exchange="sync" (PACELINE_EXCHANGE=sync).',
            )
        if choice.own:
            raise UsageError(
                f"op=hvd.Adasum was given together with {choice}; it is Horovod's own.",
                "Leave codec=, error_feedback= and collective= out, or use op=hvd.Average.",
            )
        return _adasum(optimizer, names, compression, backward_passes_per_step, process_set)

    # An elastic job may have one rank now and more later.
    elastic = variables.elastic()
    alone = not process_set.included() or (process_set.size() == 1 and not elastic)
    if asked.results_wait and compression not in (horovod.Compression.none, horovod.Compression.fp16):
        raise UsageError(
            "A compression of your own was given together with an exchange whose results wait in Horovod's library.",
            'Use hvd.Compression.none or hvd.Compression.fp16, or exchange="sync".',
        )
    elementwise = compression in (horovod.Compression.none, horovod.Compression.fp16) and not choice.lossy
    most_bytes = buckets_asked(bucket_bytes, policy) if elementwise and asked.exchanges_gradients else 0
    if asked.sharded and elementwise:
        most_bytes = sys.maxsize  # gradients with one owner form one message
    unscoped = alone or (asked.synchronous and not names.made)
    word = "" if asked.synchronous else declaration_of(asked).word
    scope = "" if unscoped else scope_of(names, process_set.process_set_id)
    if alone:
        give(asked)  # other ranks may use it
        asked = Sync()
    wire = TorchWire(optimizer, names, op, compression, gradient_predivide_factor, process_set, scope, word, choice)
    if isinstance(asked, Split):
        wire.elementwise = asked.elementwise or type(optimizer) in ELEMENTWISE
    made = make(asked, wire)
    small_bytes, shapes_stay = 0 if alone else most_bytes, not asked.in_step
    spans = (lambda: spans_of(process_set.size(), wire.elementwise)) if asked.sharded else (lambda: SPANS)
    buckets = Buckets(optimizer, names, groups, sparse_as_dense, small_bytes, shapes_stay, spans)
    reduction = Reduction(buckets, None if alone else made, backward_passes_per_step, find_unused_parameters)
    shared = None
    if isinstance(made, SplitExchange):
        shared = SharedState(optimizer, names, made)
        made.collect = shared.hold
    warn_weight_unused(horovod.rank())
    wrapper = WrappedOptimizer(optimizer, reduction, made, op, process_set, alone, shared)
    _wrappers[optimizer] = weakref.ref(wrapper)
    return wrapper


def _check(
    optimizer: Any, backward_passes_per_step: int, op: int, gradient_predivide_factor: float, process_set: Any
) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            f"DistributedOptimizer was given a {type(optimizer).__name__} where an optimizer is expected.",
            "Pass a torch.optim.Optimizer, such as torch.optim.SGD(model.parameters(), lr=0.1).",
        )
    held_by = _wrappers.get(optimizer) if type(optimizer) is not WrappedOptimizer else None
    if (
        type(optimizer) is WrappedOptimizer
        or type(optimizer).__module__ == horovod.optimizer.__name__
        or (held_by is not None and held_by() is not None)
    ):
        raise UsageError(
            f"This {optimizer.__class__.__name__} is wrapped by a DistributedOptimizer already.",
            "Use the optimizer that the first call returned; a second one would exchange every gradient twice.",
        )
    if not horovod.is_initialized():
        raise UsageError("DistributedOptimizer was called before hvd.init().", "Call hvd.init() first.")
    if process_set.process_set_id is None:
        raise UsageError(
            f"The process set {process_set} is not registered.", "Register it: hvd.add_process_set(process_set)."
        )
    if backward_passes_per_step < 1:
        raise UsageError(f"backward_passes_per_step={backward_passes_per_step} is below 1.", "Use 1 or more.")
    if gradient_predivide_factor != 1.0 and (op != horovod.Average or horovod.rocm_built()):
        raise UsageError(
            f"gradient_predivide_factor={gradient_predivide_factor} needs op=hvd.Average, and Horovod without ROCm.",
            "Leave gradient_predivide_factor out or use op=hvd.Average.",
        )


def _check_exchanged(exchange: ExchangeSettings, op: int, compression: Any, factor: float) -> None:
    """Raise UsageError for options of the gradient exchange if gradients are not exchanged."""
    given = {
        "op": op != horovod.Average and op != horovod.Adasum,
        "compression": compression is not horovod.Compression.none,
        "gradient_predivide_factor": factor != 1.0,
    }
    found = [name for name, differs in given.items() if differs]
    if found and exchange.averages_models:
        raise UsageError(
            f"{' and '.join(found)} given together with the exchange {declaration_of(exchange).word}: each rank makes "
            "updates with its own gradients, and models are averaged.",
            f'Leave {", ".join(f"{name}=" for name in found)} out, or use exchange="sync".',
        )


def _adasum(
    optimizer: torch.optim.Optimizer, names: ParameterNames, compression: Any, passes: int, process_set: Any
) -> Any:
    if process_set.process_set_id != horovod.global_process_set.process_set_id:
        raise UsageError("op=hvd.Adasum works on all ranks only, not on a process set.", "Leave process_set out.")
    if not (horovod.mpi_enabled() or horovod.nccl_built()):
        raise UsageError(
            "op=hvd.Adasum needs MPI or NCCL; this job runs on Gloo, which has no Adasum.",
            "Use op=hvd.Average, or install with HOROVOD_WITH_MPI=1 paceline horovod install and run over MPI.",
        )
    adasum = unmodified.original(horovod.optimizer.DistributedOptimizer)(
        optimizer, names.items(), compression=compression, backward_passes_per_step=passes, op=horovod.Adasum
    )
    adasum.state = optimizer.state
    return adasum
