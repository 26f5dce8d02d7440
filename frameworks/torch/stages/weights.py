"""Weights that a stage computes with.

The optimizer has the user's parameters. Forward passes run on aliases of them: other tensors on the same memory, with
separate version counters in autograd. So an update may change memory that a graph has saved, and the backward pass then
uses the newest weights. Autograd still refuses all other tensors changed in place since they were saved.

For a schedule with older weights, the parameters move to new memory before an update. The old aliases keep the old
weights, which are freed with the last reference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from paceline.stages.execution.versions import VersionedWeights


class Version:
    """Aliases of all parameters of a stage, on the memory of one version of the weights, or of the newest."""

    def __init__(self, parameters: Sequence[Tensor], memory: Sequence[Tensor]) -> None:
        self.aliases = [
            nn.Parameter(one.data, requires_grad=parameter.requires_grad)
            for parameter, one in zip(parameters, memory, strict=True)
        ]


class Weights(VersionedWeights):
    """The weights of a stage's module."""

    def __init__(self, module: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__(Version(parameters, parameters))
        self.parameters = list(parameters)
        self._places: list[list[tuple[nn.Module, str]]] = [[] for _ in self.parameters]
        numbers = {id(parameter): number for number, parameter in enumerate(self.parameters)}
        for owner in module.modules():
            for name, parameter in owner._parameters.items():
                if parameter is not None:
                    self._places[numbers[id(parameter)]].append((owner, name))

    def refresh(self) -> None:
        """Make new aliases if the parameters got other memory (module.to) or were frozen; not within a step."""
        for parameter, alias in zip(self.parameters, self._newest.aliases, strict=True):
            if parameter.data_ptr() != alias.data_ptr() or parameter.requires_grad != alias.requires_grad:
                self._newest = self._made()
                return

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Context of computing with `use`; afterwards the module has the parameters again."""
        try:
            yield
        finally:
            self._install(self.parameters)

    def use(self, version: Version) -> None:
        """Make the module compute with this version."""
        self._install(version.aliases)

    def _install(self, tensors: Sequence[nn.Parameter]) -> None:
        for places, tensor in zip(self._places, tensors, strict=True):
            for owner, name in places:
                if owner._parameters[name] is not tensor:
                    setattr(owner, name, tensor)  # recurrent modules keep their own lists of parameters

    def accumulate(self, version: Version, backward: Callable[[], None]) -> None:
        """Call `backward`, a pass through `version`, and add its gradients to those of the parameters."""
        pairs = list(zip(self.parameters, version.aliases, strict=True))
        for parameter, alias in pairs:
            alias.grad = parameter.grad
        try:
            backward()
        finally:
            for parameter, alias in pairs:
                parameter.grad, alias.grad = alias.grad, None

    def corrected(self, correction: Callable[[int], Tensor]) -> Version:
        """Return weights in their own memory, made by `correction` of each parameter's number."""
        with torch.no_grad():
            return Version(self.parameters, [correction(number) for number in range(len(self.parameters))])

    def _leave(self) -> None:
        for parameter in self.parameters:
            parameter.data = parameter.data.clone()

    def _made(self) -> Version:
        return Version(self.parameters, self.parameters)
