"""System limits of a rank: open files, locked memory, shared memory."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from paceline.launch.doctor.findings import Finding, ok, warning

# Gloo holds about two connections to each other rank; data-loader workers hold pipes.
FEW_FILES = 1024
SHARED = Path("/dev/shm")
LEAST_SHARED_BYTES = 256 << 20
LEAST_MEMORY_BYTES = 1 << 30
MIB = 1 << 20


def open_files() -> Iterator[Finding]:
    """Check the limit of open files and connections of a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{_count(soft)}, may be raised to {_count(hard)}"
    if 0 <= soft < FEW_FILES:
        yield warning(
            "open files", f"{found}: too few for many ranks", f"ulimit -n {FEW_FILES} or more, before ranks start."
        )
    else:
        yield ok("open files", found)


def locked_memory() -> Iterator[Finding]:
    """Check memory that may be locked: RDMA and NCCL over InfiniBand need it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    found = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft / MIB:g} MiB"
    if soft != resource.RLIM_INFINITY and Path("/sys/class/infiniband").is_dir():
        yield warning(
            "locked memory",
            f"{found}, and there is InfiniBand here",
            "ulimit -l unlimited, also for the scheduler's daemon.",
        )
    else:
        yield ok("locked memory", found)


def shared_memory() -> Iterator[Finding]:
    """Check shared memory, which NCCL and data-loader workers use. Containers have 64 MiB by default."""
    remedy = "docker run --shm-size=8g or --ipc=host; in a pod an emptyDir of medium Memory at /dev/shm."
    if not SHARED.is_dir() or not os.access(SHARED, os.W_OK):
        yield warning(str(SHARED), "is not there or cannot be written", remedy)
        return
    free_bytes = shutil.disk_usage(SHARED).free
    found = f"{free_bytes / MIB:.0f} MiB free"
    if free_bytes < LEAST_SHARED_BYTES:
        yield warning(str(SHARED), found, remedy)
    else:
        yield ok(str(SHARED), found)


def memory() -> Iterator[Finding]:
    """Check available memory."""
    free_bytes = psutil.virtual_memory().available
    found = f"{free_bytes / MIB:.0f} MiB available, {os.cpu_count()} processors"
    if free_bytes < LEAST_MEMORY_BYTES:
        yield warning("memory", found, "End what needs it, or start fewer ranks on this host.")
    else:
        yield ok("memory", found)


def _count(limit: int) -> str:
    return "any number" if limit == resource.RLIM_INFINITY else str(limit)
