"""Features of training scripts besides the plain loop: rows of the matrix, each written once for both kinds of run.

A feature builds the optimizer and makes STEPS updates. FEATURES holds its requirements on model and exchange.
"""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from integration_tests.support.matrix_runs import Backward, Run, in_one

STEPS = 5


def _train(
    run: Run,
    passes: Callable[[int], Backward] | None = None,
    change: Callable[[int], object] | None = None,
    after: Callable[[int], object] = lambda step: None,
    combine: bool = True,
    **options: Any,
) -> None:
    """Build, and make STEPS updates: of `passes(step)`, gradients changed by `change(step)`, each followed by `after`.

    `options`: those of DistributedOptimizer.
    """
    run.build(**options)
    for step in range(STEPS):
        changed = None if change is None else functools.partial(change, step)
        run.update((passes or run.one_pass)(step), changed, combine)
        after(step)


def plain(run: Run) -> None:
    _train(run)


def _clipping(run: Run) -> None:
    _train(run, change=lambda _: torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.05))


def _clipping_in_flight(run: Run) -> None:
    """Clip by torch's functions while gradients are in flight, as trainers without knowledge of ranks do."""
    utils, parameters = torch.nn.utils, list(run.model.parameters())
    clips = [lambda: utils.clip_grad_norm_(parameters, 0.05), lambda: utils.clip_grad_value_(iter(parameters), 0.02)]
    _train(run, change=lambda step: clips[step % 2](), combine=False)


def _several(run: Run, step: int) -> list[Backward]:
    return [run.one_pass(3 * step + part) for part in range(3)]


def _accumulation(run: Run) -> None:
    """Three passes, then one step(): the script counts."""
    _train(run, lambda step: in_one(_several(run, step)), backward_passes_per_step=3)


def _accumulation_counted(run: Run) -> None:
    """zero_grad() and step() around every pass: the wrapper counts."""
    run.build(backward_passes_per_step=3)
    for step in range(STEPS):
        run.counted(_several(run, step))


def _closures(run: Run) -> None:
    run.closure = True
    plain(run)


def _schedulers(run: Run) -> None:
    """Two schedulers, made from the wrapped optimizer."""
    optimizer = run.build()
    scheduler = torch.optim.lr_scheduler
    several = [scheduler.LinearLR(optimizer, 0.5, total_iters=3), scheduler.CosineAnnealingWarmRestarts(optimizer, 2)]
    for step in range(STEPS):
        run.update(run.one_pass(step))
        for one in several:
            one.step()


def _scheduler_before_wrapping(run: Run) -> None:
    """As in scripts that get both from a function; torch must not warn that step() was not called."""
    held = run.setting.make(list(run.model.parameters()))
    scheduler = torch.optim.lr_scheduler.StepLR(held, 2, gamma=0.5)
    run.wrap(held)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(STEPS):
            run.update(run.one_pass(step))
            scheduler.step()


def _freezing(run: Run) -> None:
    """One parameter is frozen from the start until step 2, another from step 2 to 4."""
    first, *_, last = run.model.parameters()
    first.requires_grad_(False)
    run.build()
    for step in range(STEPS):
        first.requires_grad_(step >= 2)
        last.requires_grad_(step not in (2, 3))
        run.update(run.one_pass(step))


def _replace(run: Run, names: tuple[str, ...]) -> None:
    """Replace these parameters in the model and in the groups, as Gaussian splatting does.

    The new ones take over their state.
    """
    held = getattr(run.optimizer, "held", run.optimizer)
    for name in names:
        module, _, last = name.rpartition(".")
        old = run.model.get_parameter(name)
        new = torch.nn.Parameter(old.detach() * 0.5)
        setattr(run.model.get_submodule(module), last, new)
        for group in held.param_groups:
            group["params"] = [new if one is old else one for one in group["params"]]
        if old in held.state:
            held.state[new] = held.state.pop(old)


def _replacing(run: Run, passes: Callable[[int], Backward] | None = None, **options: Any) -> None:
    """Replace one parameter after an update, and all of them after two."""
    names = tuple(dict(run.model.named_parameters()))

    def replace(step: int) -> None:
        if step in (1, 2):
            run.settle()
            _replace(run, names if step == 2 else names[-1:])

    _train(run, passes, after=replace, **options)


def _replacing_in_accumulation(run: Run) -> None:
    _replacing(run, lambda step: in_one(_several(run, step)), backward_passes_per_step=3)


def _draining(run: Run) -> None:
    """Drain after every other update, as before a validation: gradients in flight are applied, nothing else changes."""
    _train(run, after=lambda step: run.settle() if step % 2 else None)


def _activation_checkpointing(run: Run) -> None:
    """Recompute the first layers in the backward pass; a reentrant checkpoint runs a backward pass within it."""
    run.build()
    head, tail = run.model[:2], run.model[2:]

    def forward(reentrant: bool, inputs: Tensor) -> Tensor:
        return tail(checkpoint(head, inputs.requires_grad_(), use_reentrant=reentrant))

    for step in range(STEPS):
        run.forward = functools.partial(forward, step % 2 == 1)
        run.update(run.one_pass(step))


def _saved(run: Run) -> io.BytesIO:
    run.collect()
    file = io.BytesIO()
    torch.save({"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}, file)
    file.seek(0)
    return file


def _load(run: Run, file: io.BytesIO) -> None:
    saved = torch.load(file)  # with torch's default, weights_only=True
    run.model.load_state_dict(saved["model"])
    run.optimizer.load_state_dict(saved["optimizer"])


def _renewed(run: Run, take_up: Callable[[io.BytesIO], None]) -> None:
    """Continue in a new process from a file in the middle."""
    run.build()
    for step in range(STEPS):
        if step == 3:
            file = _saved(run)
            run.renew()
            run.build()
            take_up(file)
        run.update(run.one_pass(step))


def _saving(run: Run) -> None:
    """Every rank saves and loads its own state."""
    _renewed(run, lambda file: _load(run, file))


def _resuming(run: Run) -> None:
    """The first rank loads, and shares the state with the others."""

    def take_up(file: io.BytesIO) -> None:
        if run.first():
            _load(run, file)
        run.share()

    _renewed(run, take_up)


def _autograd_grad(run: Run) -> None:
    """A penalty on the gradient in even steps; in odd ones a single rank computes gradients again after its pass."""

    def backward(step: int, rank: int) -> Tensor:
        loss = run.loss(rank, step)
        weights = list(run.model.parameters())
        if step % 2 == 0:
            slopes = torch.autograd.grad(loss, weights, create_graph=True)
            loss = loss + 0.1 * torch.stack([slope.square().sum() for slope in slopes]).sum()
        loss.backward()
        if step % 2 and rank == 0:
            torch.autograd.grad(run.loss(rank, step), weights)
        return loss.detach()

    _train(run, lambda step: functools.partial(backward, step))


def _user_hooks(run: Run) -> None:
    """Nonlinear hooks of each rank change the submitted gradient; hooks of steps run once."""
    optimizer = run.build()
    calls = {"before": 0, "after": 0}

    def count(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            calls[name] += 1

        return hook

    def clamp(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.clamp_(-0.02, 0.05)

    for parameter in run.model.parameters():
        parameter.register_hook(lambda gradient: gradient * gradient.abs().sqrt())
        parameter.register_post_accumulate_grad_hook(clamp)
    optimizer.register_step_pre_hook(count("before"))
    optimizer.register_step_post_hook(count("after"))
    for step in range(STEPS):
        run.update(run.one_pass(step))
    assert calls == {"before": STEPS, "after": STEPS}


def _add_param_group(run: Run) -> None:
    """The second half of the parameters joins after two steps with another rate."""
    parameters = list(run.model.parameters())
    early, late = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
    optimizer = run.build(early)
    for step in range(STEPS):
        if step == 2:
            optimizer.add_param_group({"params": late, "lr": 0.5 * optimizer.param_groups[0]["lr"]})
        run.update(run.one_pass(step))


def _retain_graph(run: Run) -> None:
    """Two backward passes through one graph."""

    def backward(step: int, rank: int) -> Tensor:
        loss = run.loss(rank, step)
        loss.backward(retain_graph=True)
        (loss * loss).backward()
        return loss.detach()

    _train(run, lambda step: functools.partial(backward, step), backward_passes_per_step=2)


def _inputs(run: Run) -> None:
    """A separate backward pass for each half of the parameters."""

    def backward(step: int, rank: int) -> Tensor:
        loss = run.loss(rank, step)
        parameters = list(run.model.parameters())
        loss.backward(inputs=parameters[::2], retain_graph=True)
        loss.backward(inputs=parameters[1::2])
        return loss.detach()

    _train(run, lambda step: functools.partial(backward, step))


def _compile(run: Run) -> None:
    run.forward = torch.compile(run.model, backend="eager", fullgraph=True)
    plain(run)


def _channels_last(run: Run) -> None:
    run.model.to(memory_format=torch.channels_last)
    run.share()
    model = run.model
    run.forward = lambda inputs: model(inputs.to(memory_format=torch.channels_last))
    plain(run)
    assert not next(run.model.parameters()).is_contiguous()


@dataclass(frozen=True)
class Feature:
    """A feature: its training function, and its requirements.

    `reference`: training function in one process, if different. `kind`: its model; None: the optimizer's. `dense`: True
    if its code reads gradients in ways that torch supports for dense ones only. `averaging`: with a partial exchange
    the models are averaged, too. `stateless`: the optimizer must hold no parameters of its own. `all_at_once`: ranks
    must have made the same updates (no partial exchange).
    """

    train: Callable[[Run], None]
    reference: Callable[[Run], None] | None = None
    kind: str | None = None
    dtype: torch.dtype = torch.float32
    dense: bool = False
    averaging: bool = False
    stateless: bool = False
    all_at_once: bool = False


FEATURES: dict[str, Feature] = {
    "clipping": Feature(_clipping, dense=True),
    "clipping_in_flight": Feature(_clipping_in_flight, dense=True),
    "accumulation": Feature(_accumulation),
    "accumulation_counted": Feature(_accumulation_counted),
    "closures": Feature(_closures),
    "schedulers": Feature(_schedulers),
    "scheduler_before_wrapping": Feature(_scheduler_before_wrapping),
    "freezing": Feature(_freezing),
    "replacing": Feature(_replacing, stateless=True),
    "replacing_in_accumulation": Feature(_replacing_in_accumulation, stateless=True),
    "draining": Feature(_draining),
    "tied_weights": Feature(plain, kind="tied"),
    "activation_checkpointing": Feature(_activation_checkpointing, kind="layers"),
    "saving": Feature(_saving),
    "resuming": Feature(_resuming, all_at_once=True),
    "autograd_grad": Feature(_autograd_grad, dense=True),
    "user_hooks": Feature(_user_hooks, dense=True),
    "add_param_group": Feature(_add_param_group),
    "retain_graph": Feature(_retain_graph),
    "inputs": Feature(_inputs),
    "compile": Feature(_compile, reference=plain, kind="layers"),
    "channels_last": Feature(_channels_last, kind="image", averaging=True),
    "bf16": Feature(plain, kind="layers", dtype=torch.bfloat16, averaging=True),
    "float64": Feature(plain, dtype=torch.float64, averaging=True),
    "sparse": Feature(plain, kind="rows"),
}
