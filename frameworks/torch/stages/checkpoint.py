"""State of a stage, and of all stages as one: {"model", "optimizer", "pipeline"}.

"model" and "optimizer" are the results of nn.Module.state_dict and torch.optim.Optimizer.state_dict for the whole
model, or for the stage's part of it. Groups of the optimizer name their parameters ("param_names"). "pipeline" has the
state of schedule and corrections. "exchange" has the state of the exchange between replicas by rank, if there is any.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline.stages.execution.grid import Grid
from paceline.stages.execution.posting import Post, Tag
from paceline.stages.execution.saved import check_parts
from paceline.stages.execution.terms import receive_text, send_text
from paceline.torch.errors import UsageError
from paceline.torch.optimizer.wrapper import IN_FLIGHT
from paceline.torch.stages.layers import Stage

_NAMES, _PARAMS, _EXCHANGE = "param_names", "params", "exchange"
# State of a pipeline by parameter name: T2's running means and Nesterov's velocities.
_MEMORY = ("deltas", "velocities")
_PIPELINE = ("steps", "asynchronous", *_MEMORY)


def complete(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return `state` with all three parts; "optimizer" may be None. Raises UsageError if another part is missing."""
    empty: dict[str, Any] = {name: {} for name in _MEMORY}
    found = {"optimizer": None, "pipeline": {"steps": 0, "asynchronous": 0, **empty}, **state}
    parts: list[tuple[Any, tuple[str, ...]]] = [(found, ("model",)), (found["pipeline"], _PIPELINE)]
    if found["optimizer"] is not None:
        parts.append((found["optimizer"], ("state", "param_groups")))
    check_parts(parts)
    return found


def optimizer_state(optimizer: torch.optim.Optimizer | None, stage: Stage) -> dict[str, Any]:
    """State of the optimizer with parameter names in its groups; empty for a stage without parameters."""
    if optimizer is None:
        return {"state": {}, "param_groups": []}
    state = optimizer.state_dict()
    groups = [
        {**saved, _NAMES: names} for saved, names in zip(state["param_groups"], _names(optimizer, stage), strict=True)
    ]
    return {**state, "param_groups": groups}


def load_optimizer_state(
    optimizer: torch.optim.Optimizer | None,
    stage: Stage,
    saved: Mapping[str, Any] | None,
    whole_names: Sequence[str],
    kept: Any = None,
) -> None:
    """Load this stage's part of a saved state of any cut; None leaves the optimizer unchanged.

    `whole_names`: all parameters of the model, for a state with one group without names. `kept`: this rank's state of
    the exchange between replicas. Raises UsageError where names are missing; nothing has changed then.
    """
    if optimizer is None or saved is None:
        return
    by_name: dict[str, tuple[dict[str, Any], Any]] = {}
    for group in saved["param_groups"]:
        names = group.get(_NAMES)
        if names is None and len(saved["param_groups"]) == 1 and len(group[_PARAMS]) == len(whole_names):
            names = whole_names
        if names is None:
            raise UsageError(
                "The saved state of the optimizer does not name its parameters, and is not that of one group of all.",
                'Build the optimizer from model.named_parameters(), or add "param_names" to its saved groups.',
            )
        by_name.update({name: (group, number) for name, number in zip(names, group[_PARAMS], strict=True)})
    own = optimizer.state_dict()
    state: dict[int, Any] = {}
    groups = []
    for group, names in zip(own["param_groups"], _names(optimizer, stage), strict=True):
        missing = [name for name in names if name not in by_name]
        if missing:
            raise UsageError(
                f"The saved state of the optimizer lacks {missing[0]}, a parameter of this stage.",
                "Load the state of the whole model (pipeline.consolidate()), or this stage's own of the same cut.",
            )
        for name, number in zip(names, group[_PARAMS], strict=True):
            saved_number = by_name[name][1]
            if saved_number in saved["state"]:
                # Optimizers change loaded states in place.
                state[number] = copy.deepcopy(saved["state"][saved_number])
        options = dict(by_name[names[0]][0]) if names else dict(group)
        options.pop(_NAMES, None)
        groups.append({**options, _PARAMS: group[_PARAMS]})
    further = {} if kept is None else {IN_FLIGHT: kept}
    optimizer.load_state_dict({"state": state, "param_groups": groups, **further})


def refuse_in_flight(optimizer: Mapping[str, Any], who: str) -> None:
    """Raise UsageError if the state of a stage's optimizer has gradients in flight, which no other cut can load."""
    if optimizer.get(IN_FLIGHT) is not None and optimizer[IN_FLIGHT]["in_flight"]:
        raise UsageError(
            f"{who.capitalize()} was to be consolidated with gradients of its replicas in flight.",
            "Call drain() before, on all ranks.",
        )


def kept_by_exchange(saved: Mapping[str, Any], cut: Sequence[str], grid: Grid, stage: int, replica: int) -> Any:
    """State for this rank's exchange: from its own state, or from one of all ranks with the same cut and replicas."""
    if saved["optimizer"] is None:
        return None
    if _EXCHANGE not in saved:
        return saved["optimizer"].get(IN_FLIGHT)
    kept = saved[_EXCHANGE]
    if (kept["cut"], kept["replicas"]) != (list(cut), grid.replicas):
        return None
    return kept["ranks"][stage * grid.replicas + replica]


def consolidated(post: Post, grid: Grid, cut: Sequence[str], own: dict[str, Any]) -> dict[str, Any] | None:
    """Return the states of all stages as one on rank 0, None on the others. `post`: among all ranks of `grid`."""
    _, replica = grid.place(post.communicator.rank)
    kept = own["optimizer"].pop(IN_FLIGHT, None)
    own = {_EXCHANGE: kept, **(own if replica == 0 else {})}
    if post.communicator.rank > 0:
        memory = io.BytesIO()
        torch.save(own, memory)
        send_text(post, 0, Tag.STATE, memory.getvalue())
        post.finish()
        return None
    everyones = [copy.deepcopy(own)]  # a copy like those of other ranks: training continues without changing it
    for rank in range(1, post.communicator.size):
        memory = io.BytesIO(receive_text(post, rank, Tag.STATE))
        everyones.append(torch.load(memory, map_location="cpu", weights_only=False))
    states = [everyones[rank] for rank in grid.pipeline(0)]
    ranks = [one[_EXCHANGE] for one in everyones]
    further = {}
    if any(one is not None for one in ranks):
        further = {_EXCHANGE: {"cut": list(cut), "replicas": grid.replicas, "ranks": ranks}}
    return {
        **further,
        "model": _merged([one["model"] for one in states]),
        "optimizer": _one_optimizer([one["optimizer"] for one in states]),
        "pipeline": {
            **own["pipeline"],
            **{name: _merged([one["pipeline"][name] for one in states]) for name in _MEMORY},
        },
    }


def _names(optimizer: torch.optim.Optimizer, stage: Stage) -> list[list[str]]:
    """Names of the parameters in each group."""
    names = {id(parameter): name for name, parameter in zip(stage.names, stage.parameters, strict=True)}
    return [[names[id(parameter)] for parameter in group[_PARAMS]] for group in optimizer.param_groups]


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}


def _one_optimizer(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge groups with equal options, and number the parameters through all groups as PyTorch does."""
    groups: list[tuple[dict[str, Any], list[tuple[str, Any]]]] = []
    for part in parts:
        for group in part["param_groups"]:
            options = {key: value for key, value in group.items() if key not in (_NAMES, _PARAMS)}
            members = [
                (name, part["state"].get(number)) for name, number in zip(group[_NAMES], group[_PARAMS], strict=True)
            ]
            for known, found in groups:
                if str(known) == str(options):
                    found.extend(members)
                    break
            else:
                groups.append((options, members))
    state: dict[int, Any] = {}
    param_groups = []
    begin = 0
    for options, members in groups:
        numbers = range(begin, begin + len(members))
        begin = numbers.stop
        state.update({number: kept for number, (_, kept) in zip(numbers, members, strict=True) if kept is not None})
        param_groups.append({**options, _PARAMS: list(numbers), _NAMES: [name for name, _ in members]})
    return {"state": state, "param_groups": param_groups}
