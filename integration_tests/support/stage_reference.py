"""Training with late gradients in one process: a plain statement of the method.

The net of stage_training, with passes written by hand. Every stage has all versions of its weights. The schedule's
instructions determine the version of each pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from integration_tests.support.stage_training import Optimizer, net
from paceline.stages import schedules
from paceline.stages.delays import delays
from paceline.stages.instructions import Kind
from paceline.stages.schedule import Schedule
from paceline.stages.versions import versions


@dataclass
class _Stage:
    parameters: list[torch.nn.Parameter]
    optimizer: torch.optim.Optimizer
    # All versions: the weights, and T2's running mean.
    weights: list[list[Tensor]]
    deltas: list[list[Tensor]]
    # Versions used by the passes, by mini-batch and micro-batch.
    forwards: dict[tuple[int, int], int] = field(default_factory=dict)
    backwards: dict[tuple[int, int], int] = field(default_factory=dict)
    norms: list[list[Tensor]] = field(default_factory=list)
    # Nesterov's momentum: the weights without their look-ahead, and v.
    behind: list[Tensor] = field(default_factory=list)
    velocity: list[Tensor] = field(default_factory=list)


def train_with_old_weights(
    schedule: str,
    stages: int,
    microbatches: int,
    firsts: Sequence[int],
    optimizer: Optimizer,
    batches: Sequence[tuple[Tensor, Tensor]],
    warmup_steps: int = 0,
    annealing_steps: int = 0,
    correction: float | None = None,
    max_norm: float | None = None,
    nesterov: float | None = None,
    update_every: int = 1,
) -> tuple[dict[str, Tensor], list[float]]:
    """Weights by name, and losses. `firsts`: the first layer of each stage."""
    model = net()
    bounds = [*firsts, len(model)]
    layers = [range(bounds[number], bounds[number + 1]) for number in range(stages)]
    late = schedules.make(schedule, stages, microbatches * update_every)
    warm_updates = math.ceil(warmup_steps / update_every)
    taus = delays(late)
    everyone = []
    for number in range(stages):
        parameters = [one for layer in layers[number] for one in model[layer].parameters()]
        first = [one.detach().clone() for one in parameters]
        made = _Stage(parameters, optimizer(parameters), [first], [[torch.zeros_like(one) for one in first]])
        made.velocity = made.deltas[0]
        end = (len(batches) - warmup_steps) * microbatches
        instructions = (*late.of_microbatches(number, 0, end), *late.drain_after(number, end))
        for one, version in zip(instructions, versions(late, instructions), strict=True):
            step, microbatch = divmod(one.minibatch * late.microbatches + one.microbatch, microbatches)
            place = step + warmup_steps, microbatch
            if one.kind is Kind.FORWARD:
                made.forwards[place] = version + warm_updates
            elif one.kind is Kind.BACKWARD:
                made.backwards[place] = version + warm_updates
        everyone.append(made)
    losses = []
    updates = summed = 0
    for step, (batch, target) in enumerate(batches):
        warm = step < warmup_steps
        total = 0.0
        for microbatch, (inputs, goal) in enumerate(
            zip(batch.tensor_split(microbatches), target.tensor_split(microbatches), strict=True)
        ):
            place = step, microbatch
            share = inputs.shape[0] / batch.shape[0]
            saved = []
            value = inputs
            for number, stage in enumerate(everyone):
                used = stage.weights[updates if warm else stage.forwards[place]]
                value, kept = _forward(model, layers[number], used, value)
                saved.append(kept)
            total += float(((value - goal) ** 2).mean() * share)
            gradient = 2 * (value - goal) / value.numel() * share
            for number in reversed(range(stages)):
                stage = everyone[number]
                version = updates if warm else stage.backwards[place]
                used = stage.weights[version]
                if not warm and correction is not None:
                    gap = taus[number][0] - taus[number][1]
                    used = [one - gap * delta for one, delta in zip(used, stage.deltas[version], strict=True)]
                gradient, found = _backward(model, layers[number], used, saved[number], gradient)
                for parameter, one in zip(stage.parameters, found, strict=True):
                    parameter.grad = one if parameter.grad is None else parameter.grad + one
        losses.append(total)
        summed += 1
        if not (summed == update_every or step + 1 in (warmup_steps, len(batches))):
            continue
        for stage in everyone:
            for one in stage.parameters:
                one.grad /= summed
            stage.norms.append([one.grad.norm() for one in stage.parameters])
        for number, stage in enumerate(everyone):
            if max_norm is not None:
                _clip(everyone, number, updates, warm_updates, late, late.synchronous or warm, max_norm)
            gamma = None
            if nesterov is not None and not warm:
                gamma = nesterov + (0.99 - nesterov) * (stages - 1 - number) / stages
            _update(stage, taus[number], updates - warm_updates, annealing_steps, correction, gamma)
        updates, summed = updates + 1, 0
    return {
        f"{layer}.{name}": one.detach()
        for layer, module in model.named_children()
        for name, one in module.named_parameters()
    }, losses


def _update(
    stage: _Stage,
    taus: tuple[float, float],
    asynchronous: int,
    annealing_steps: int,
    correction: float | None,
    nesterov: float | None,
) -> None:
    forward, backward = taus
    factor = 1.0
    if asynchronous >= 0 and annealing_steps:
        factor = max(forward, 1.0) ** -(1 - min(asynchronous / annealing_steps, 1.0))
    rates = [group["lr"] for group in stage.optimizer.param_groups]
    for group, rate in zip(stage.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    stage.optimizer.step()
    for group, rate in zip(stage.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    stage.optimizer.zero_grad()
    before, after = stage.weights[-1], [one.detach().clone() for one in stage.parameters]
    if nesterov is not None:
        after = _with_momentum(stage, nesterov, before, after)
    stage.weights.append(after)
    gap = forward - backward
    gamma = correction ** (1 / gap) if correction is not None and gap > 0 else 0.0
    stage.deltas.append(
        [
            gamma * delta + (1 - gamma) * (new - old)
            for delta, new, old in zip(stage.deltas[-1], after, before, strict=True)
        ]
    )


def _with_momentum(stage: _Stage, gamma: float, before: list[Tensor], after: list[Tensor]) -> list[Tensor]:
    """Weights of the next passes, w + gamma v; the optimizer has changed them from `before` to `after`."""
    if not stage.behind:
        stage.behind = before
    changes = [new - old for new, old in zip(after, before, strict=True)]
    stage.velocity = [gamma * v + (1 - gamma) * change for v, change in zip(stage.velocity, changes, strict=True)]
    stage.behind = [w + v for w, v in zip(stage.behind, stage.velocity, strict=True)]
    ahead = [w + gamma * v for w, v in zip(stage.behind, stage.velocity, strict=True)]
    with torch.no_grad():
        for parameter, one in zip(stage.parameters, ahead, strict=True):
            parameter.copy_(one)
    return ahead


def _clip(
    everyone: Sequence[_Stage],
    number: int,
    update: int,
    warm_updates: int,
    schedule: Schedule,
    synchronous: bool,
    max_norm: float,
) -> None:
    norms = []
    for other, stage in enumerate(everyone):
        behind = max(number - other, schedule.ahead(other) - schedule.ahead(number))
        lag = 0 if synchronous or other >= number else math.ceil(behind / schedule.microbatches)
        if update - lag >= (0 if synchronous else warm_updates):
            norms += stage.norms[update - lag]
    factor = torch.clamp(max_norm / (torch.stack(norms).norm() + 1e-6), max=1.0)
    for one in everyone[number].parameters:
        one.grad *= factor


def _forward(
    model: torch.nn.Sequential, layers: range, weights: Sequence[Tensor], value: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the output, and values for the backward pass: the input of a linear layer, the output of tanh."""
    remaining = iter(weights)
    kept = []
    for layer in layers:
        if isinstance(model[layer], torch.nn.Linear):
            kept.append(value)
            value = value @ next(remaining).T + next(remaining)
        else:
            value = value.tanh()
            kept.append(value)
    return value, kept


def _backward(
    model: torch.nn.Sequential, layers: range, weights: Sequence[Tensor], kept: Sequence[Tensor], gradient: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Return the gradient of the input, and the gradients of the parameters."""
    found: list[Tensor] = []
    remaining = list(weights)
    for layer, saved in zip(reversed(layers), reversed(kept), strict=True):
        if isinstance(model[layer], torch.nn.Linear):
            remaining.pop()
            found[:0] = [gradient.T @ saved, gradient.sum(0)]
            gradient = gradient @ remaining.pop()
        else:
            gradient = gradient * (1 - saved**2)
    return gradient, found
