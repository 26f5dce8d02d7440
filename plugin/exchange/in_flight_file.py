"""Files of in-flight gradients: NumPy's .npz without pickled objects, so that loading one runs no code.

A state is a nest of dictionaries (whose keys are words or numbers), lists, tuples, numbers and arrays. The file has its
arrays, by number, and the surrounding structure as JSON.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from paceline.errors import UserError

_NEST = "nest"


def save_in_flight(path: Path, state: dict[str, Any] | None) -> None:
    """Write `state`, which `in_flight()` returned, to `path`, atomically: a temporary file is renamed."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    nest = json.dumps(_flat(state, arrays))
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}.half")
    with half.open("wb") as file:
        np.savez(file, **{_NEST: np.array(nest)}, **arrays)  # type: ignore[arg-type]
    half.replace(path)


def load_in_flight(path: Path) -> dict[str, Any] | None:
    """Return the state in `path`. Raises UserError for other files, FileNotFoundError without one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        state: dict[str, Any] | None = _nested(json.loads(str(arrays[_NEST])), arrays)
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError, BadZipFile) as error:
        raise UserError(
            f"Expected gradients in flight in {path}, found something else: {error}",
            "Give a file that hvd.callbacks.InFlightCheckpoint has written.",
        ) from error
    return state


def _flat(one: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(one, np.ndarray):
        name = str(len(arrays))
        arrays[name] = one
        return {"array": name}
    if isinstance(one, dict):
        return {"dict": [[key, _flat(value, arrays)] for key, value in one.items()]}
    if isinstance(one, (list, tuple)):
        return {type(one).__name__: [_flat(value, arrays) for value in one]}
    return one.item() if isinstance(one, np.generic) else one


def _nested(one: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if not isinstance(one, dict):
        return one
    ((kind, inside),) = one.items()
    if kind == "array":
        return arrays[inside]
    if kind == "dict":
        return {key: _nested(value, arrays) for key, value in inside}
    values = [_nested(value, arrays) for value in inside]
    return tuple(values) if kind == "tuple" else values
