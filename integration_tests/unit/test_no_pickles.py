"""Files that Paceline reads run no code: a pickle in the place of each is refused. Places of ours that unpickle."""

from __future__ import annotations

import ast
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from integration_tests.support.packages import ROOT
from paceline.collectives import network_file
from paceline.errors import UserError
from paceline.exchange.in_flight_file import load_in_flight, save_in_flight
from paceline.fusion import plan_file
from paceline.history.checks import reading
from paceline.launch.record import horovods_timeline
from paceline.record import trace


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def _array_file(folder: Path) -> bytes:
    """A file of gradients in flight one of whose arrays has an object in it."""
    save_in_flight(folder / "good.npz", {"k": 2, "in_flight": [({0: np.ones(3)}, 1.0)]})
    with np.load(folder / "good.npz") as good:
        arrays = dict(good)
    arrays["0"] = np.array([Touch(folder / "touched")], dtype=object)
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _one_of_torch(folder: Path) -> bytes:
    file = io.BytesIO()
    torch.save(Touch(folder / "touched"), file)
    return file.getvalue()


FORMS: dict[str, Callable[[Path], bytes]] = {
    "pickle": lambda folder: pickle.dumps(Touch(folder / "touched")) + b"\n",
    "npz": _array_file,
    "torch.save": _one_of_torch,
}
LOADERS: dict[str, Callable[[Path], Any]] = {
    "gradients in flight": load_in_flight,
    "plan": plan_file.read,
    "network": network_file.load,
    "trace": trace.load,
    "history": lambda path: list(reading.records_of(path)),
    "Horovod's timeline": horovods_timeline.load,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loader", LOADERS)
def test_a_file_with_a_pickle_is_refused_and_runs_nothing(loader: str, form: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(FORMS[form](tmp_path))
    with pytest.raises(UserError) as raised:
        LOADERS[loader](path)
    assert str(path) in raised.value.problem and raised.value.remedy
    assert not (tmp_path / "touched").exists()


def test_each_form_would_run_code_if_it_were_unpickled(tmp_path: Path) -> None:
    """The counterpart: the same bytes, loaded with objects allowed."""
    touched = tmp_path / "touched"
    loads: tuple[tuple[str, Callable[[Path], Any]], ...] = (
        ("pickle", lambda path: pickle.loads(path.read_bytes())),
        ("npz", lambda path: np.load(path, allow_pickle=True)["0"]),
        ("torch.save", lambda path: torch.load(path, weights_only=False)),
    )
    for form, load in loads:
        path = tmp_path / "file"
        path.write_bytes(FORMS[form](tmp_path))
        load(path)
        assert touched.exists(), form
        touched.unlink()
    assert zipfile.is_zipfile(path)


# Calls that can unpickle, by file; docs/guides/security.md names where their bytes come from.
UNPICKLE = {
    "plugin/fusion/serialize.py": {"pickle.loads"},  # a policy, from the launcher's environment
    "frameworks/torch/stages/checkpoint.py": {"torch.load"},  # consolidate(), from other ranks
    "frameworks/torch/stages/trees.py": {"pickle.loads"},  # structures of activations, from other ranks
    "frameworks/keras/stages/state.py": {"pickle.loads"},  # consolidate(), from other ranks
}
_CALLS = {
    "pickle.load", "pickle.loads", "cloudpickle.load", "cloudpickle.loads", "torch.load", "codec.loads_base64",
    "joblib.load", "dill.loads", "marshal.loads", "shelve.open",
}  # fmt: skip


def _unpickling(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name, words = ast.unparse(node.func), [ast.unparse(word) for word in node.keywords]
            if name in _CALLS and "weights_only=True" not in words:
                found.add(name)
            if name == "np.load" and "allow_pickle=False" not in words:
                found.add(name)
    return found


def test_no_other_place_unpickles() -> None:
    found = {}
    for floor in ("plugin", "frameworks", "launch"):
        for path in (Path(ROOT) / floor).rglob("*.py"):
            if calls := _unpickling(path):
                found[str(path.relative_to(ROOT))] = calls
    assert found == UNPICKLE
