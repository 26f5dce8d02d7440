"""State of a stage, and of all stages as one: {"model", "optimizer", "pipeline"}, of NumPy arrays."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.stages.execution.posting import Post, Tag
from paceline.stages.execution.saved import check_parts
from paceline.stages.execution.terms import receive_text, send_text


def complete(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return `state` with all three parts; only "model" is required. Raises UsageError if a part is incomplete."""
    found = {
        "optimizer": None,
        "pipeline": {"steps": 0, "asynchronous": 0, "deltas": {}, "random": {}},
        **state,
    }
    parts = [
        (found, ("model",)),
        (found["pipeline"], ("steps", "asynchronous", "deltas", "random")),
        (found["optimizer"] or {"shared": 0, "slots": 0}, ("shared", "slots")),
    ]
    check_parts(parts)
    return found


def consolidated(post: Post, own: dict[str, Any]) -> dict[str, Any] | None:
    """Return the states of all stages as one on rank 0, None on the others."""
    if post.communicator.rank > 0:
        send_text(post, 0, Tag.STATE, pickle.dumps(own))
        post.finish()
        return None
    states = [own]
    for stage in range(1, post.communicator.size):
        states.append(pickle.loads(receive_text(post, stage, Tag.STATE)))
    return {
        "model": _merged([one["model"] for one in states]),
        "optimizer": {
            "shared": _merged([one["optimizer"]["shared"] for one in states]),
            "slots": _merged([one["optimizer"]["slots"] for one in states]),
        },
        "pipeline": {
            **own["pipeline"],
            **{name: _merged([one["pipeline"][name] for one in states]) for name in ("deltas", "random")},
        },
    }


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: value for part in parts for name, value in part.items()}
