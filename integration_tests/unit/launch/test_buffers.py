"""Buffers of `paceline probe`: wrong results are found."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.launch.probe.buffers import Buffers, Case


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "allreduce"])
def test_wrong_results_are_found(operation: str) -> None:
    root, other = Buffers(Case(operation, 64, 2), 0, 3), Buffers(Case(operation, 64), 2, 3)
    assert [array.size for array in root.arrays] == [16, 16]
    for one in (root, other):
        one.fill()
    right = 1 if operation == "broadcast" else 6
    for array in (*root.arrays, *other.arrays):
        array.fill(right)
    root.check()
    other.check()
    root.arrays[1][3] = 2
    with pytest.raises(ValueError, match=f"{operation} of 64 bytes on rank 0: element 3 is 2.0"):
        root.check()
    other.arrays[0][:] = np.inf
    if operation == "reduce":
        other.check()  # only the root has a result
    else:
        with pytest.raises(ValueError, match="on rank 2"):
            other.check()


def test_a_model_has_a_buffer_for_each_tensor() -> None:
    assert [array.nbytes for array in Buffers(Case("broadcast", 12, 1, (4, 8)), 0, 2).arrays] == [4, 8]
