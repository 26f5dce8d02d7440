"""Broadcasts of models, and of structures that hold tensors, of every type and memory layout."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.native.agreement import agree
from paceline.native.library import loaded
from paceline.torch.horovod import horovod_torch as horovod
from paceline.torch.state.structures import within
from paceline.torch.state.transfer import put_back, to_copy


def broadcast_parameters(params: Any, root_rank: int) -> None:
    """Broadcast the values of `root_rank` to all ranks in place, as horovod.torch.broadcast_parameters.

    Args:
        params: a dict or list of (name, tensor), such as model.state_dict(), or a list of tensors. Tensors may have any
            type and memory layout, including bfloat16 and channels_last; each rank keeps its own layout.
        root_rank: rank that has the values.

    Raises:
        ValueError: `params` is neither a dict nor a list.
    """
    if isinstance(params, dict):
        _broadcast(((name, params[name]) for name in sorted(params)), root_rank)
    elif isinstance(params, list):
        _broadcast((one if isinstance(one, tuple) else (None, one) for one in params), root_rank)
    else:
        raise ValueError(f"broadcast_parameters was given a {type(params).__name__}: pass a dict or a list.")


def broadcast_module(model: torch.nn.Module, root_rank: int) -> None:
    """Broadcast parameters and buffers of `root_rank`, including buffers that are not saved.

    Raises UsageError on all ranks if their models differ.
    """
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    tensors = [(f"model.{name}", held[name]) for name in sorted(held)]
    agree_on("the model", [(name, tuple(one.shape), str(one.dtype)) for name, one in tensors])
    _broadcast(tensors, root_rank)


def broadcast_structure(
    structure: Any, root_rank: int, name: str, process_set: Any = horovod.global_process_set
) -> Any:
    """Return `root_rank`'s structure: dicts, lists and tuples of tensors and of picklable objects.

    Tensors arrive on a device of the kind they were on; the root returns its own. Operation names begin with `name`.
    """
    tensors: list[Tensor] = []
    is_root = horovod.rank() == root_rank
    mine = _outline(structure, tensors) if is_root else None
    outline = horovod.broadcast_object(mine, root_rank, name=name, process_set=process_set)
    if not is_root:
        _spaces(outline, tensors)
    _broadcast(((f"{name}.{number}", one) for number, one in enumerate(tensors)), root_rank, process_set)
    return structure if is_root else _filled(outline, tensors)


def agree_on(what: str, description: Any) -> None:
    """Wait for all ranks; raises UsageError on every rank if their descriptions of `what` differ."""
    digest = zlib.crc32(repr(description).encode())
    agree(
        loaded("torch"),
        0,
        "paceline.broadcast.digest",
        [digest],
        f"digests of {what} (here of {_short(description)})",
        f"Build {what} in the same way on all ranks before the broadcast.",
    )


def broadcast_among(tensors: Iterable[tuple[str, Any]], process_set: Any) -> None:
    """Broadcast the named tensors of a process set's first rank to its other ranks, in place."""
    _broadcast(tensors, process_set.ranks[0], process_set)


def _broadcast(
    tensors: Iterable[tuple[str | None, Any]], root_rank: int, process_set: Any = horovod.global_process_set
) -> None:
    started = []
    for name, tensor in tensors:
        sent = to_copy(tensor)
        started.append((horovod.broadcast_async_(sent, root_rank, name, process_set), tensor, sent))
    for handle, tensor, sent in started:
        horovod.synchronize(handle)
        put_back(tensor, sent)


def _short(description: Any) -> str:
    text = str(description)
    return text if len(text) < 400 else f"{text[:400]}..."


@dataclass(frozen=True)
class _Space:
    """Placeholder for a tensor in a pickled structure."""

    number: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


def _outline(value: Any, tensors: list[Tensor]) -> Any:
    """Return `value` with placeholders for dense tensors, which are appended to `tensors`."""
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized:
        tensors.append(value)
        return _Space(len(tensors) - 1, tuple(value.shape), value.dtype, value.device.type)
    return within(value, lambda one: _outline(one, tensors))


def _spaces(outline: Any, tensors: list[Tensor]) -> None:
    """Append a tensor for every placeholder of `outline`, in the order of their numbers."""
    if isinstance(outline, _Space):
        tensors.append(torch.empty(outline.shape, dtype=outline.dtype, device=outline.device))
    else:
        within(outline, lambda one: _spaces(one, tensors))


def _filled(outline: Any, tensors: list[Tensor]) -> Any:
    """Return `outline` with tensors in place of placeholders."""
    if isinstance(outline, _Space):
        return tensors[outline.number]
    return within(outline, lambda one: _filled(one, tensors))
