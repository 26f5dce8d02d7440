"""Tied weights: parameters shared by layers of several stages, such as the embedding of GPT-2 and its head.

The first of these stages owns the parameter: its optimizer updates it. The others compute with copies. Before an update
the owner adds the gradients of the copies to its own; afterwards it sends them the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from paceline.stages.execution.posting import Post, Tag
from paceline.stages.execution.sharing import shared
from paceline.torch.stages.layers import AnyLayer
from paceline.torch.stages.tensors import StageTensors


@dataclass(frozen=True)
class Tie:
    """A parameter owned by stage `owner`, with copies on stages `copies`."""

    parameter: nn.Parameter
    owner: int
    copies: list[int] = field(default_factory=list)


def ties_of(layers: Sequence[AnyLayer], firsts: Sequence[int]) -> list[Tie]:
    """Ties of a model, in the order of its parameters; `firsts`: the first layer of each stage."""
    found: dict[int, Tie] = {}
    for one in shared((layer.tensors() for layer in layers), firsts):
        if isinstance(one.shared, nn.Parameter):
            tie = found.setdefault(id(one.shared), Tie(one.shared, one.before))
            if one.stage not in tie.copies:
                tie.copies.append(one.stage)
    return list(found.values())


def untied(layers: Sequence[AnyLayer], ties: Iterable[Tie]) -> Iterator[Iterator[tuple[str, Tensor]]]:
    """Yield for each layer its tensors that are in no tie, with their names."""
    tied = {id(tie.parameter) for tie in ties}
    for layer in layers:
        yield ((name, one) for name, one in layer.tensors() if id(one) not in tied)


class Ties:
    """Exchange of the tied parameters of this stage, in the order of the model."""

    def __init__(self, ties: Sequence[Tie], post: Post, tensors: StageTensors) -> None:
        self._stage, self._ties = post.communicator.rank, ties
        self._post, self._tensors = post, tensors

    def gather(self) -> None:
        """Add the gradients of copies to those of their owners, and clear them."""
        for tie in self._ties:
            if self._stage != tie.owner:
                self._send_gradient(tie)
                continue
            for copy in tie.copies:
                found = self._gradient_of(copy, tie.parameter)
                if found is not None and tie.parameter.requires_grad:
                    own = tie.parameter.grad
                    tie.parameter.grad = found if own is None else own + found

    def share(self) -> None:
        """Send the owners' weights to the copies, on all stages."""
        for tie in self._ties:
            if self._stage == tie.owner:
                host = self._tensors.host(tie.parameter.detach().contiguous())
                for copy in tie.copies:
                    self._post.send(copy, Tag.TIE, self._tensors.memory(host))
                self._post.finish()  # before the weights change
            else:
                with torch.no_grad():
                    tie.parameter.copy_(self._receive(tie.owner, tie.parameter))

    def _send_gradient(self, tie: Tie) -> None:
        gradient, tie.parameter.grad = tie.parameter.grad, None
        self._post.send_bytes(tie.owner, Tag.TIE, b"-" if gradient is None else b"+")
        if gradient is not None:
            host = self._tensors.host(gradient.to_dense().contiguous())
            self._post.send(tie.owner, Tag.TIE, self._tensors.memory(host))

    def _gradient_of(self, stage: int, parameter: Tensor) -> Tensor | None:
        sign = bytearray(1)
        self._post.wait([self._post.receive_bytes(stage, Tag.TIE, sign)])
        return self._receive(stage, parameter) if sign == b"+" else None

    def _receive(self, stage: int, like: Tensor) -> Tensor:
        host = torch.empty(like.shape, dtype=like.dtype)
        self._post.wait([self._post.receive(stage, Tag.TIE, self._tensors.memory(host))])
        return self._tensors.here(host)
