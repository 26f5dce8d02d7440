"""A CUDA toolkit and NCCL that pip has installed, linked into folders in which a build of Horovod finds them.

NVIDIA's wheels for CUDA 13 share one folder in site-packages, nvidia/cu13; NCCL's has nvidia/nccl. They lack lib64, and
the names of libraries that a linker looks for: they have those of the run time alone, such as libcudart.so.13.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

CUDA_HOME, NCCL_HOME = "CUDA_HOME", "NCCL_HOME"
_VERSIONED = re.compile(r"(lib.+\.so)\.\d+(\.\d+)*")


def _folders() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(place) for place in spec.submodule_search_locations or ()] if spec is not None else []


def homes() -> dict[str, Path]:
    """Return the folders of pip's CUDA compiler (CUDA_HOME) and of its NCCL (NCCL_HOME), if they are installed."""
    found: dict[str, Path] = {}
    for folder in _folders():
        toolkits = [one for one in folder.glob("cu[0-9]*") if (one / "bin/nvcc").exists()]
        if toolkits:
            found[CUDA_HOME] = max(toolkits, key=lambda one: int(one.name.removeprefix("cu")))
        if (folder / "nccl/include/nccl.h").exists():
            found[NCCL_HOME] = folder / "nccl"
    return found


def link(chosen: Mapping[str, Path], folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Link the `chosen` ones of `homes` into `folder`; return the variables of a build that uses them."""
    linked = {name: _linked(home, folder / f"pip-{home.name}") for name, home in chosen.items()}
    variables: dict[str, str] = {}
    if CUDA_HOME in linked:
        home = str(linked[CUDA_HOME])
        path = f"{home}/bin{os.pathsep}{environ.get('PATH', os.defpath)}"
        variables |= {"HOROVOD_CUDA_HOME": home, "CUDA_HOME": home, "PATH": path}
    if NCCL_HOME in linked:
        variables |= {"HOROVOD_NCCL_HOME": str(linked[NCCL_HOME]), "HOROVOD_NCCL_LINK": "shared"}
    return variables


def _linked(home: Path, to: Path) -> Path:
    for name in ("bin", "lib"):
        (to / name).mkdir(parents=True)
    (to / "lib64").symlink_to("lib")  # CMake looks for a toolkit's libraries there, and for NCCL in lib
    for name in ("include", "nvvm"):
        if (home / name).exists():
            (to / name).symlink_to(home / name)
    for program in home.glob("bin/*"):  # one by one: nvcc takes bin/.. for its toolkit, which follows a link of bin
        (to / "bin" / program.name).symlink_to(program)
    for library in home.glob("lib/lib*"):
        (to / "lib" / library.name).symlink_to(library)
        if (match := _VERSIONED.fullmatch(library.name)) and not (home / "lib" / match[1]).exists():
            (to / "lib" / match[1]).symlink_to(library)
    return to
