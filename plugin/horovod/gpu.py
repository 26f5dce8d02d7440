"""GPU support of a Horovod build: operations requested by variables, and the handling of gradients on GPUs."""

from __future__ import annotations

import functools
import importlib.util
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_OPERATIONS = ("ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER")
ALL = "HOROVOD_GPU_OPERATIONS"
VARIABLES = ("HOROVOD_GPU", ALL, *(f"HOROVOD_GPU_{operation}" for operation in _OPERATIONS))
LIBRARIES = ("NCCL", "MPI")
_ROCM = "ROCM"


def asked_for(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the GPU operations of a build with `environ`, variable -> library; empty: CUDA and ROCm are off."""
    return {name: environ[name] for name in VARIABLES[1:] if environ.get(name)}


def with_cuda(environ: Mapping[str, str]) -> bool:
    """Return True if a build with `environ` needs a CUDA toolkit."""
    return bool(asked_for(environ)) and environ.get("HOROVOD_GPU") != _ROCM


# Name of each framework, and its file with the CUDA or ROCm version that it was built with.
_TORCH, _TENSORFLOW = ("PyTorch", "version.py"), ("TensorFlow", "python/platform/build_info.py")
_FRAMEWORKS = {"torch": _TORCH, "tensorflow": _TENSORFLOW}


@functools.cache
def of_framework(framework: str) -> str:
    """Return the CUDA or ROCm that "torch" or "tensorflow" was built with, without importing it; or ""."""
    spec = importlib.util.find_spec(framework)
    if spec is None or not spec.submodule_search_locations:
        return ""
    file = Path(next(iter(spec.submodule_search_locations))) / _FRAMEWORKS[framework][1]
    if not file.exists():
        return ""
    values = runpy.run_path(str(file))
    built = {"cuda": values.get("cuda"), "hip": values.get("hip"), **values.get("build_info", {})}
    if built["cuda"] or built.get("is_cuda_build"):
        return f"CUDA {built['cuda'] or built.get('cuda_version', '')}".strip()
    return f"ROCm {built['hip'] or ''}".strip() if built["hip"] or built.get("is_rocm_build") else ""


# Modes of gradients on GPUs.
HOST_STAGING = "host staging"  # paceline.horovod.shims.host_staging; TensorFlow copies by itself
WITHOUT_NCCL = "CUDA without NCCL"
NCCL = "NCCL"


def of_allreduces(inputs: Mapping[str, Any]) -> str:
    """Return the library that reduces tensors on GPUs in a Horovod built from `inputs` (`key.build_inputs`), or ""."""
    libraries = asked_for(inputs["environment"])
    # As in Horovod's build, the variable of one operation overrides that of all.
    return libraries.get("HOROVOD_GPU_ALLREDUCE", libraries.get(ALL, ""))


def mode(inputs: Mapping[str, Any]) -> str:
    """Return how a Horovod that was built from `inputs` (`key.build_inputs`) exchanges gradients on GPUs."""
    if not asked_for(inputs["environment"]):
        return HOST_STAGING
    return NCCL if of_allreduces(inputs) == NCCL else WITHOUT_NCCL


def gradients(framework: str, version: str, inputs: Mapping[str, Any]) -> str:
    """Describe the handling of a gradient on a GPU in a Horovod that was built from `inputs` (`key.build_inputs`)."""
    name, of_gpus = _FRAMEWORKS[framework][0], of_framework(framework)
    if not of_gpus:
        return f"none: {name} {version} is built without CUDA"
    found, libraries = mode(inputs), asked_for(inputs["environment"])
    if found == HOST_STAGING:
        place = "pinned CPU memory" if framework == "torch" else "CPU memory by TensorFlow"
        return f"{found} ({of_gpus}): gradients are copied to {place}, and every exchange works on them there"
    all_of_them = libraries.pop(ALL, "")
    ways = [f"{all_of_them} exchanges gradients between GPUs"] if all_of_them else []
    ways += [f"{name.removeprefix('HOROVOD_GPU_').lower()} over {library}" for name, library in libraries.items()]
    if not all_of_them:
        ways.append("other operations in CPU memory")
    built = ", ".join(f"{name} {value}" for name, value in inputs.get("found", {}).items() if name in ("CUDA", "NCCL"))
    return f"{found} ({of_gpus}): {', '.join(ways)} (built with {built or _ROCM})"


def modes(inputs: Mapping[str, Any]) -> str:
    """Return the mode in a few words for the first line of a run; "" if no installed framework can use GPUs."""
    names = [name for framework, (name, _) in _FRAMEWORKS.items() if of_framework(framework)]
    return f"gradients on GPUs: {mode(inputs)}" if names and inputs["frameworks"] else ""
