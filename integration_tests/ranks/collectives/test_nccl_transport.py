"""Our transport over NCCL: what it does with tags, orders and errors, with a stand-in for NCCL; and that it compiles
against NCCL's own headers where these are. There is no GPU in any of it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from pathlib import Path

import pytest

from integration_tests.support.ranks import ROOT

HERE = Path(__file__).parent
PLUGIN = ROOT / "plugin"
TRANSPORT = sorted(PLUGIN.glob("bridge/transport/nccl_*.cc"))
COLLECTIVES = (
    *(PLUGIN / "bridge" / "collectives" / name for name in ("engine.cc", "wire.cc")),
    *(path for room in ("codecs", "collectives") for path in sorted(PLUGIN.glob(f"core/{room}/*.cc"))),
)
FLAGS = ["-Wall", "-Wextra", "-Werror", "-pthread", "-DHAVE_NCCL=1", "-DHAVE_CUDA=1", f"-I{PLUGIN}", f"-I{HERE}"]
COMPILE_TIMEOUT_S = 900  # takes 30 s where nobody else wants the processor
RUN_TIMEOUT_S = 120
# What nccl.h includes: packages by which pip brings it, and where the system's has it.
WHEELS = ("nccl", "cuda_runtime", "cuda_nvcc", "cuda_cccl")
SYSTEM = ("/usr/include", "/usr/local/include", "/usr/local/cuda/include")


def _run(command: list[str], timeout_s: float) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("nccl") / "ranks"
    sources = [*TRANSPORT, *COLLECTIVES, *sorted(HERE.glob("nccl/*.cc"))]
    command = ["g++", "-std=c++17", "-O1", "-g", *FLAGS, f"-I{HERE / 'nccl'}", *map(str, sources), "-o", str(program)]
    _run(command, COMPILE_TIMEOUT_S)
    return program


@pytest.mark.more
@pytest.mark.timeout(COMPILE_TIMEOUT_S + RUN_TIMEOUT_S)
@pytest.mark.parametrize(
    ("case", "size"),
    [
        ("values", 2),
        ("values", 3),
        ("values", 4),
        ("orders", 2),
        ("lengths", 2),
        ("silent", 2),
        ("stopped", 2),
        ("no_device", 2),
    ],
)
def test_case(program: Path, case: str, size: int) -> None:
    _run([str(program), case, str(size)], RUN_TIMEOUT_S)


def _headers() -> list[Path]:
    """The folders of NCCL's and CUDA's own headers; none if there are not all of them."""
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else [Path(root) for root in spec.submodule_search_locations or ()]
    folders = [root / wheel / "include" for root in roots for wheel in WHEELS]
    folders += [Path(folder) for folder in SYSTEM[1:] if (Path(folder) / "nccl.h").exists()]
    found = [folder for folder in folders if folder.is_dir()]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "nccl.cc"
        source.write_text("#include <nccl.h>\n")
        command = ["g++", "-fsyntax-only", *(f"-isystem{one}" for one in found), str(source)]
        return found or [Path(SYSTEM[0])] if subprocess.run(command, capture_output=True).returncode == 0 else []


@pytest.mark.timeout(COMPILE_TIMEOUT_S)
def test_it_compiles_against_the_real_headers(tmp_path: Path) -> None:
    folders = _headers()
    if not folders:
        pytest.skip(
            "NCCL's headers: not installed; pip install nvidia-nccl-cu12 nvidia-cuda-runtime-cu12 "
            "nvidia-cuda-nvcc-cu12 nvidia-cuda-cccl-cu12"
        )
    for standard in (17, 20):  # TensorFlow's and PyTorch's
        for source in TRANSPORT:
            includes = [f"-isystem{one}" for one in folders if str(one) != SYSTEM[0]]
            out = str(tmp_path / f"{source.stem}.{standard}.o")
            _run(["g++", f"-std=c++{standard}", *FLAGS, *includes, "-c", str(source), "-o", out], COMPILE_TIMEOUT_S)
            symbols = subprocess.run(["nm", "-C", out], capture_output=True, text=True, check=True).stdout
            assert "ncclSend" in symbols or "NcclTransport" in symbols, "NCCL is too old for it: nothing was compiled"
