"""Gradients in flight as they are saved (paceline.exchange.in_flight_state), from and to what PyTorch has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.torch.fusion.groups import Group
from paceline.torch.optimizer.names import ParameterNames
from paceline.torch.state.structures import within

# Whose values another type holds, where NumPy has none of it.
_HELD_IN = {torch.bfloat16: torch.float32}


def arrays(value: Any) -> Any:
    """`value`, a structure of dicts, lists and tuples, with arrays in the place of tensors.

    Sparse tensors become dicts of indices, values and shape; bfloat16 becomes float32.
    """
    if isinstance(value, Tensor) and value.is_sparse:
        whole = value.coalesce()
        return {
            "indices": arrays(whole.indices()),
            "values": arrays(whole.values()),
            "shape": np.array(whole.shape, np.int64),
        }
    if isinstance(value, Tensor):
        return value.detach().cpu().to(_HELD_IN.get(value.dtype, value.dtype)).numpy()
    return within(value, arrays)


def tensors(value: Any) -> Any:
    """`value` with tensors in the place of arrays, which share their memory: all that torch.load reads by default."""
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else within(value, tensors)


def from_plain(sparse: Mapping[str, Any]) -> Tensor:
    """The sparse tensor that `arrays` made a dict of."""
    indices, values = torch.from_numpy(sparse["indices"]), torch.from_numpy(sparse["values"])
    shape = sparse["shape"].tolist()
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)


def by_parameter(state: dict[str, Any], units: Mapping[str, Group], names: ParameterNames) -> dict[str, Any]:
    """An exchange's state, which has lists of what travels together, with every gradient under its own name."""
    in_flight = [
        (
            {
                names[parameter]: one
                for unit, many in results.items()
                for parameter, one in zip(units[unit], many, strict=True)
            },
            scale,
        )
        for results, scale in state["in_flight"]
    ]
    return {**state, "in_flight": in_flight}


def by_unit(state: dict[str, Any], units: Mapping[str, Group], names: ParameterNames) -> dict[str, Any]:
    """The other way round. Raises ValueError if the gradients in flight are not those of whole `units`."""
    in_flight = []
    for results, scale in state["in_flight"]:
        missing = [names[member] for unit in units.values() for member in unit if names[member] not in results]
        known = {name: unit for name, unit in units.items() if names[unit[0]] in results}
        gathered = {
            name: [results[names[member]] for member in unit if names[member] in results]
            for name, unit in known.items()
        }
        unknown = set(results) - {names[member] for unit in known.values() for member in unit}
        if unknown or any(len(gathered[name]) != len(unit) for name, unit in known.items()):
            raise ValueError(
                f"it has gradients in flight of {', '.join(map(repr, sorted(results)))}, "
                f"and none of {', '.join(map(repr, missing))}"
            )
        in_flight.append((gathered, scale))
    return {**state, "in_flight": in_flight}
