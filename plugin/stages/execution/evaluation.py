"""Passes without training: outputs and metrics, the same on all ranks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from paceline.errors import UsageError
from paceline.stages.execution.activations import Signature
from paceline.stages.execution.batches import rows_of_parts
from paceline.stages.execution.grid import Grid
from paceline.stages.execution.posting import Post, Tag
from paceline.stages.execution.tensors import Tensors
from paceline.stages.execution.terms import gathered, receive_text, send_text


class Output(NamedTuple):
    """Output of a model for a micro-batch: its tensors, of the kind `kind`."""

    kind: str
    tensors: list[Any]


def joined(outputs: Sequence[Output], rows: int, tensors: Tensors) -> Output:
    """Return the output for a batch of `rows` rows from the outputs for its micro-batches.

    Raises UsageError if these have different kinds, other numbers of rows than their micro-batches, or different values
    of a number.
    """
    if len({one.kind for one in outputs}) != 1:
        raise UsageError("The output differs in structure between micro-batches.", "Return one structure for all rows.")
    sizes = rows_of_parts(rows, len(outputs))
    found = []
    for parts in zip(*(one.tensors for one in outputs), strict=True):
        if not len(parts[0].shape):
            if len({tensors.number(one) for one in parts}) != 1:
                raise UsageError(
                    "The output has a number that differs between micro-batches: rows have one value each.",
                    "Return a tensor with one row per row of the batch, or leave the number out.",
                )
            found.append(parts[0])
            continue
        for one, size in zip(parts, sizes, strict=True):
            if one.shape[0] != size:
                raise UsageError(
                    f"The output has {one.shape[0]} rows for a micro-batch of {size}: expected as many.",
                    "Return tensors whose first dimension is that of the batch.",
                )
        found.append(tensors.joined(parts))
    return Output(outputs[0].kind, found)


def of_last_stage(post: Post, tensors: Tensors, output: Output | None) -> Any:
    """Return the last stage's output on all stages, in the model's structure and on their devices."""
    last = post.communicator.size - 1
    if output is not None:
        hosts = [tensors.host(one) for one in output.tensors]
        signature = Signature(output.kind, tuple(tensors.form(one, False) for one in hosts))
        for other in range(last):
            send_text(post, other, Tag.STATE, signature.encode())
            for host in hosts:
                post.send(other, Tag.STATE, tensors.memory(host))
        post.finish()
        return tensors.whole(*output)
    signature = Signature.decode(receive_text(post, last, Tag.STATE))
    hosts = [tensors.empty(form) for form in signature.forms]
    post.wait([post.receive(last, Tag.STATE, tensors.memory(one)) for one in hosts])
    return tensors.whole(signature.kind, [tensors.here(one) for one in hosts])


def metrics_of_last_stages(post: Post, grid: Grid, own: dict[str, float]) -> dict[str, float]:
    """Return means over the replicas of the last stage; `post` connects all ranks of `grid`."""
    everyones = [json.loads(text) for text in gathered(post, json.dumps(own))]
    last = [everyones[grid.pipeline(replica)[-1]] for replica in range(grid.replicas)]
    return {name: sum(one[name] for one in last) / len(last) for name in last[0]}
