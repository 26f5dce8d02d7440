"""Restore random numbers and buffers after passes, which change them in addition to gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def undisturbed(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Context in which passes of `module` leave random numbers and buffers unchanged."""
    now = random_state(device)
    try:
        with buffers_aside(module):
            yield
    finally:
        set_random_state(now, device)


def random_state(device: torch.device) -> list[Tensor]:
    """Return the random state of the host, and of the device if it is a GPU."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def set_random_state(states: Sequence[Tensor], device: torch.device) -> None:
    """Restore the result of `random_state`."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)


@contextlib.contextmanager
def buffers_aside(module: nn.Module) -> Iterator[None]:
    """Context in which the module computes with copies of its buffers."""
    held = [
        (owner, name, buffer)
        for owner in module.modules()
        for name, buffer in owner._buffers.items()
        if buffer is not None
    ]
    for owner, name, buffer in held:
        owner._buffers[name] = buffer.clone()
    try:
        yield
    finally:
        for owner, name, buffer in held:
            owner._buffers[name] = buffer
