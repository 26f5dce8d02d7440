"""Names of parameters: every operation has a name, the same on all ranks.

Optimizers with equal names must not take each other's gradients. Therefore names that are made here, and names of
exchanges with gradients in flight, get the *scope* of their optimizer as a prefix. The scope is the optimizer's number
among those with the same names since hvd.init(). All ranks of a process set make optimizers in the same order. Saved
states hold the names without scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from paceline.exchange.own_names import own_number
from paceline.native.library import loaded
from paceline.torch.errors import UsageError


class ParameterNames:
    """Map from parameter to name, for all parameters of an optimizer.

    The name comes from `named_parameters`, else from the group's "param_names" (torch keeps them if the optimizer was
    built from named parameters), else it is "parameter.<group>.<index>". `named_parameters` may name more parameters
    than the optimizer has; a group that is added later finds its names there. If other parameters have names, one added
    without a name becomes "<name of the first>.added.<group>.<index>", because other optimizers may get such a group
    too.

    Raises UsageError for entries that are not (name, parameter), for a name given twice, and for a parameter of the
    optimizer that `named_parameters` leaves out.
    """

    def __init__(self, param_groups: list[dict[str, Any]], named_parameters: Iterable[Any] | None) -> None:
        self.made = False  # True if names were made from group and position
        self._names: dict[Tensor, str] = {}
        self._parameters: dict[str, Tensor] = {}
        self._together: dict[str, tuple[Tensor, ...]] = {}
        self._given: dict[Tensor, str] = {}
        if named_parameters is not None:
            self._given = _checked(list(named_parameters))
            _refuse_unnamed(param_groups, self._given)
        for index in range(len(param_groups)):
            self.add_group(param_groups, index)

    def __getitem__(self, parameter: Tensor) -> str:
        return self._names[parameter]

    def __contains__(self, parameter: Tensor) -> bool:
        return parameter in self._names

    def parameter(self, name: str) -> Tensor:
        """Return the parameter of this name."""
        return self._parameters[name]

    def together(self, name: str, parameters: Sequence[Tensor]) -> None:
        """Map `name` to several parameters, whose gradients one operation reduces as one tensor."""
        self._parameters[name] = parameters[0]
        self._together[name] = tuple(parameters)

    def parameters(self, names: Iterable[str]) -> list[Tensor]:
        """Return the parameters of these names; all of them for a name given to `together`."""
        return [one for name in names for one in self._together.get(name, (self._parameters[name],))]

    def succeed(self, old: Tensor, new: Tensor) -> str:
        """Give the name of `old` to `new`, by which a script replaced it. Returns the name."""
        name = self._names.pop(old)
        self._names[new] = name
        self._parameters[name] = new
        self._given[new] = self._given.pop(old, name)
        return name

    def items(self) -> list[tuple[str, Tensor]]:
        """(name, parameter) in the order of the parameter groups."""
        return [(name, parameter) for parameter, name in self._names.items()]

    def add_group(self, param_groups: list[dict[str, Any]], index: int) -> None:
        """Name the parameters of param_groups[index] that have no name yet."""
        group = param_groups[index]
        own = group.get("param_names", [])
        taken = set(self._names.values())
        for position, parameter in enumerate(group["params"]):
            if parameter in self._names:
                continue
            name = self._given.get(parameter)
            if name is None and position < len(own):
                name = own[position]
            if name is None and self._names and not self.made:
                name = f"{next(iter(self._names.values()))}.added.{index}.{position}"
            if name is None:
                name, self.made = f"parameter.{index}.{position}", True
            if name in taken:
                raise UsageError(
                    f"The name {name!r} is used by two parameters, one of them number {position} of group {index}.",
                    "Give every parameter a name of its own, for example model.named_parameters() with a prefix.",
                )
            taken.add(name)
            self._names[parameter] = name
            self._parameters[name] = parameter


def scope_of(names: ParameterNames, process_set_id: int) -> str:
    """Prefix of the names of one more optimizer: "" for the first optimizer with these names."""

    def scope(number: int) -> str:
        return f"optimizer{number}." if number else ""

    def scoped(number: int) -> list[str]:
        return [scope(number) + name for name, _ in names.items()]

    return scope(own_number(loaded("torch"), process_set_id, scoped))


def _checked(pairs: list[Any]) -> dict[Tensor, str]:
    names: dict[Tensor, str] = {}
    seen: set[str] = set()
    for pair in pairs:
        if not (
            isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], Tensor)
        ):
            raise UsageError(
                f"named_parameters has an entry of type {type(pair).__name__} where (name, parameter) is expected.",
                "Pass model.named_parameters() or a list of (name, parameter) tuples.",
            )
        if pair[0] in seen:
            raise UsageError(
                f"named_parameters has the name {pair[0]!r} twice.",
                "Names must be unique; with several models give each a prefix: "
                '[("generator." + n, p) for n, p in generator.named_parameters()].',
            )
        seen.add(pair[0])
        names.setdefault(pair[1], pair[0])
    return names


def _refuse_unnamed(param_groups: list[dict[str, Any]], given: dict[Tensor, str]) -> None:
    unnamed = [
        f"number {position} of group {index} (shape {tuple(parameter.shape)})"
        for index, group in enumerate(param_groups)
        for position, parameter in enumerate(group["params"])
        if parameter not in given
    ]
    if unnamed:
        raise UsageError(
            f"named_parameters leaves out {len(unnamed)} of the optimizer's parameters: {', '.join(unnamed[:5])}"
            f"{', ...' if len(unnamed) > 5 else ''}.",
            "Name all of them, or leave named_parameters out to have names made from group and position.",
        )
