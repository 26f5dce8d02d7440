"""Variables of a Keras 3 model that ranks share, and their broadcast."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from paceline.errors import UsageError
from paceline.keras3.optimizer import find
from paceline.keras3.sharded import slots_on_owners
from paceline.keras3.update import communication


def shared_variables(model: Any, optimizer: Any = None, local: Collection[int] = ()) -> list[Any]:
    """Weights of `model` and variables of its optimizer (or of `optimizer`), each once.

    Metrics are not shared, nor the states of random number generators: ranks must drop different units. Nor is the part
    of the optimizer that one rank has (exchange="split"). `local`: `id`s of native variables that stay unchanged.
    """
    optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
    wire = communication()
    seen = set(local) | {id(wire.native(one)) for one in slots_on_owners(find(optimizer))}
    result = []
    for variable in [*model.weights, *(optimizer.variables if optimizer is not None else ())]:
        key = id(wire.native(variable))
        if key not in seen:
            seen.add(key)
            result.append(variable)
    return result


def build_optimizer(model: Any, optimizer: Any) -> None:
    """Create the optimizer's variables now, so that a rank that joins later has as many as the others."""
    if optimizer is not None and not optimizer.built and model.built:
        optimizer.build(model.trainable_variables)


def _described(variable: Any) -> tuple[str, str]:
    dtype = getattr(variable.dtype, "name", str(variable.dtype))
    return f"{getattr(variable, 'path', variable.name)}", f"{dtype} of shape {tuple(variable.shape)}"


def broadcast_state(variables: list[Any], root_rank: int, name: str) -> None:
    """Broadcast the root's values. Raises UsageError on every rank if any rank's variables differ in kind."""
    wire = communication()
    mine = [_described(variable) for variable in variables]
    everyone = wire.gather_object(mine, f"{name}.kinds")
    root = everyone[root_rank]
    for rank, theirs in enumerate(everyone):
        if [kind for _, kind in theirs] == [kind for _, kind in root]:
            continue
        if len(theirs) != len(root):
            found, expected = f"{len(theirs)} variables", f"{len(root)}"
        else:
            pairs = zip(theirs, root)
            (path, kind), (_, wanted) = next((one, other) for one, other in pairs if one[1] != other[1])
            found, expected = f"the variable {path} as {kind}", f"{wanted}"
        raise UsageError(
            f"Rank {rank} has {found}, rank {root_rank} has {expected}: the model or its optimizer is not the same.",
            "Build and compile the same model on every rank before training.",
        )
    wire.broadcast(variables, root_rank, name)
