"""Gradients on GPUs with a Horovod without GPU operations: nothing is read before it has been copied to CPU memory.

No GPU is needed: support/late_copy.cc submits what Horovod's PyTorch module submits for such gradients.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import horovod.torch as hvd
import pytest

from integration_tests.support.ranks import ranks
from paceline import config
from paceline.horovod import archive
from paceline.native.exchanges import PIPELINED, register
from paceline.native.library import loaded
from paceline.partial.settings import Partial

SOURCE = Path(__file__).parents[2] / "support" / "late_copy.cc"
COUNT = 1001
LATE_S = 0.1


@pytest.fixture(scope="module")
def late_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test double, linked with the installed Horovod's library for PyTorch."""
    if hvd.cuda_built() or hvd.rocm_built():
        pytest.skip("the test double has no event of a GPU, which this Horovod would ask for")
    folder = tmp_path_factory.mktemp("late")
    headers = archive.unpack(archive.fetch(config.read().cache_dir), folder)
    library = next(Path(hvd.__file__).parent.glob("mpi_lib_v2*.so"))
    command = [os.environ.get("CXX", "c++"), "-std=c++17", "-shared", "-fPIC", "-pthread", f"-I{headers}", str(SOURCE)]
    command += [f"-L{library.parent}", f"-l:{library.name}", f"-Wl,-rpath,{library.parent}"]
    # PyTorch's libraries are loaded by Python before Horovod's.
    command += ["-Wl,--unresolved-symbols=ignore-in-shared-libs", "-o", str(folder / "late_copy.so")]
    subprocess.run(command, check=True, timeout=120)
    return folder / "late_copy.so"


def _allreduce(late_copy: Path, name: str, value: float, late_s: float = LATE_S, device: int = -1) -> list[float]:
    handle = ctypes.CDLL(str(late_copy))
    out, error = (ctypes.c_float * COUNT)(), ctypes.create_string_buffer(4096)
    answered = handle.late_allreduce(
        name.encode(), ctypes.c_int(0), ctypes.c_int(device), ctypes.c_float(value), ctypes.c_int64(COUNT),
        ctypes.c_double(late_s), ctypes.c_double(20.0), out, error, ctypes.c_int64(4096),
    )  # fmt: skip
    assert answered == 0, error.value.decode()
    return list(out)


@ranks(2)
def test_pipelined_exchange_waits_for_the_copy(rank: int, size: int, late_copy: Path) -> None:
    name = "late.pipelined"
    register(loaded("torch"), 0, name, PIPELINED, 2, 0)
    for step in range(4):
        expected = size * (size - 1) / 2 + size * step if step else 0.0
        # On one rank copies are late, on the others done at once.
        found = _allreduce(late_copy, name, rank + step + 1.0, LATE_S if rank == step % size else 0.0)
        assert found == [expected] * COUNT, (step, found[:3], expected)


@ranks(2)
def test_partial_exchange_waits_for_the_copy(rank: int, size: int, late_copy: Path) -> None:
    name = "late.partial"
    register(loaded("torch"), 0, name, *Partial(quorum=size).registration(size))
    for step in range(4):
        found = _allreduce(late_copy, name, rank + step + 1.0, LATE_S if rank == step % size else 0.0)
        expected = size * (size + 1) / 2 + size * step
        assert found == [expected] * COUNT, (step, found[:3], expected)


@ranks(2)
def test_names_of_our_own_operations_are_refused(rank: int, size: int, late_copy: Path) -> None:
    """Frameworks prefix names or restrict their characters; C++ may submit any name."""
    for name in ("control.0.0.1.0", "note.x", "anything"):
        with pytest.raises(AssertionError, match=rf"rank {rank} expected a name that a user may give.*Give it another"):
            _allreduce(late_copy, f"\x7fpaceline.{name}", 1.0, 0.0)
    assert _allreduce(late_copy, "paceline.control.0.0.1.0", rank + 1.0, 0.0) == [3.0] * COUNT


@ranks(2)
def test_exchanges_refuse_operations_on_gpus(rank: int, size: int, late_copy: Path) -> None:
    """Of a Horovod with operations for GPUs, which leave the tensor where it is."""
    refusal = r"found one on GPU 3\. Use exchange=\"sync\", or a Horovod that was built without HOROVOD_GPU_OPERATIONS"
    register(loaded("torch"), 0, "late.gpu.pipelined", PIPELINED, 2, 0)
    register(loaded("torch"), 0, "late.gpu.partial", *Partial().registration(size))
    for name in ("late.gpu.pipelined", "late.gpu.partial"):
        with pytest.raises(AssertionError, match=refusal):
            _allreduce(late_copy, name, 1.0, 0.0, device=3)
