"""A model as a list of layers, and the names that its tensors have in the whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paceline.torch.errors import UsageError


@dataclass(frozen=True)
class Layer:
    """One layer of a model, the unit at which a pipeline cuts.

    `name`: in the whole model, such as "3", "head" or "features.2". `called`: the module to call instead of `module`,
    which is a part of it. `prefix`: of its tensors' names in the whole model.
    """

    name: str
    module: nn.Module
    called: nn.Module | None = None
    prefix: str | None = None

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield parameters and buffers with their names in the whole model; shared ones once."""
        for name, tensor in (*self.module.named_parameters(), *self.module.named_buffers()):
            yield self.whole(name), tensor

    def whole(self, name: str) -> str:
        """Return a tensor's name in the whole model."""
        return f"{self.name}.{name}" if self.prefix is None else self.prefix + name

    @property
    def cost(self) -> int:
        """Number of elements of its parameters."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    def built(self) -> Layer:
        """Return itself: it is built already."""
        return self


@dataclass(frozen=True)
class Planned:
    """A layer that is built only on the rank of its stage. Until then all layers cost the same.

    `make` returns a module or a layer.
    """

    name: str
    make: Callable[[], Any]
    cost: int = 1

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Return nothing: it has no tensors yet."""
        return iter(())

    def built(self) -> Layer:
        """Build the layer. Raises UsageError if `make` returns neither module nor layer."""
        module = self.make()
        if isinstance(module, Layer):
            return module
        if not isinstance(module, nn.Module):
            raise UsageError(
                f"What builds layer {self.name} returned a {type(module).__name__}: expected an nn.Module.",
                "Give functions without arguments, each of which returns a module.",
            )
        return Layer(self.name, module)


AnyLayer = Layer | Planned


def layers_of(model: Any) -> Sequence[AnyLayer]:
    """Return the layers of an nn.Sequential, a list of modules, or a list of functions that build modules.

    Names are those of nn.Sequential(*model). Nested nn.Sequential modules without hooks are flattened. Raises
    UsageError for other models, empty ones, and members that are not modules.
    """
    if isinstance(model, (list, tuple)) and model and all(_builds(one) for one in model):
        return [Planned(str(number), one) for number, one in enumerate(model)]
    if isinstance(model, (list, tuple)):
        named = [(str(number), one) for number, one in enumerate(model)]
    elif isinstance(model, (nn.Sequential, nn.ModuleList)):
        named = list(model.named_children())
    else:
        raise UsageError(
            f"A pipeline cannot cut a {type(model).__name__}: expected an nn.Sequential or a list of modules.",
            "Write the model as a list of modules, each called with what the one before returned.",
        )
    for name, one in named:
        if not isinstance(one, nn.Module):
            raise UsageError(
                f"Layer {name} of the model is a {type(one).__name__}: expected an nn.Module.",
                "Put functions into a module of their own.",
            )
    if not named:
        raise UsageError("The model has no layers.", "Give at least one layer per rank.")
    return [layer for name, one in named for layer in _apart(name, one)]


def _builds(member: Any) -> bool:
    return callable(member) and not isinstance(member, nn.Module)


def _apart(name: str, module: nn.Module) -> list[Layer]:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if type(module) is not nn.Sequential or len(module) == 0 or any(getattr(module, one) for one in hooks):
        return [Layer(name, module)]
    return [layer for inner, one in module.named_children() for layer in _apart(f"{name}.{inner}", one)]


class Stage:
    """The layers of one stage as one module, and the names of its tensors in the whole model.

    `names`: of the parameters, in the order of `parameters`, each once. `copies`: parameters owned by an earlier stage;
    they are not in `parameters`.
    """

    def __init__(self, layers: Sequence[Layer], copies: Sequence[nn.Parameter] = ()) -> None:
        self.copies = list(copies)
        self.layers = tuple(layers)
        self.module = nn.Sequential(*(layer.called or layer.module for layer in layers))
        named: dict[int, tuple[str, nn.Parameter]] = {}
        for layer in layers:
            for name, parameter in layer.module.named_parameters():
                if all(parameter is not one for one in copies):
                    named.setdefault(id(parameter), (layer.whole(name), parameter))
        self.names = [name for name, _ in named.values()]
        self.parameters = [parameter for _, parameter in named.values()]

    def state_dict(self) -> dict[str, Any]:
        """State as of nn.Module.state_dict, with names in the whole model."""
        return {layer.whole(key): value for layer in self.layers for key, value in _state_of(layer).items()}

    def check(self, state: Mapping[str, Any]) -> None:
        """Raise UsageError if the state of a whole model lacks a tensor of this stage, or has it in another shape."""
        own = self.state_dict()
        missing = [name for name in own if name not in state]
        if missing:
            raise UsageError(
                f"The saved state lacks {len(missing)} tensors of this stage, {missing[0]} among them.",
                "Load the state of the whole model (pipeline.consolidate()), or this stage's own of the same cut.",
            )
        for name, one in own.items():
            saved = state[name]
            if isinstance(one, Tensor) and (not isinstance(saved, Tensor) or saved.shape != one.shape):
                found = f"shape {tuple(saved.shape)}" if isinstance(saved, Tensor) else f"type {type(saved).__name__}"
                raise UsageError(
                    f"The saved {name} has the {found}: expected a tensor of the shape {tuple(one.shape)}.",
                    "Load a state of the same model.",
                )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load this stage's part of the state of a whole model. Raises UsageError as `check` does."""
        self.check(state)
        for layer in self.layers:
            layer.module.load_state_dict({key: state[layer.whole(key)] for key in _state_of(layer)})


def _state_of(layer: Layer) -> dict[str, Any]:
    return dict(layer.module.state_dict())


def free(layers: Sequence[AnyLayer]) -> None:
    """Free the memory of layers that belong to other stages; shapes remain known, computing fails."""
    for layer in layers:
        if isinstance(layer, Layer):
            layer.module.to(torch.device("meta"))
