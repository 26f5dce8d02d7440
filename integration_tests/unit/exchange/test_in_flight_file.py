"""Files of what is in flight: everything comes back as it was, and nothing else is taken for one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.errors import UserError
from paceline.exchange.in_flight_file import load_in_flight, save_in_flight


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.in_flight.npz"
    half = np.arange(6, dtype=np.float16).reshape(2, 3)
    state = {"k": 3, "warm": 0, "in_flight": [({0: half, 7: np.full((), 2.5)}, 0.5)], "staleness": None}
    save_in_flight(path, state)
    found = load_in_flight(path)
    assert found is not None and list(found) == list(state)
    assert (found["k"], found["warm"], found["staleness"]) == (3, 0, None)
    ((results, scale),) = found["in_flight"]
    assert scale == 0.5 and list(results) == [0, 7]
    assert results[0].dtype == np.float16 and results[7].shape == () and results[7] == 2.5
    np.testing.assert_array_equal(results[0], half)
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    save_in_flight(path, None)
    assert load_in_flight(path) is None


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    with pytest.raises(FileNotFoundError):
        load_in_flight(path)
    np.savez(path, weights=np.ones(3))
    with pytest.raises(UserError, match="Expected gradients in flight"):
        load_in_flight(path)
    for content in (b"", b"no archive", path.read_bytes()[:40]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="InFlightCheckpoint"):
            load_in_flight(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(UserError, match="Expected gradients in flight"):
        load_in_flight(path)
