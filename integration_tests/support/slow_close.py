"""Connections that are closed slowly, as hundreds of them are: a library that ranks load first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

# Gloo sets this option as it closes a connection.
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int setsockopt(int fd, int level, int name, const void* value, socklen_t size) {
  static int (*real)(int, int, int, const void*, socklen_t);
  if (!real) real = (int (*)(int, int, int, const void*, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
  const char* ms = getenv("SLOW_CLOSE_MS");
  if (ms && level == SOL_SOCKET && name == SO_LINGER) usleep(1000 * atoi(ms));
  return real(fd, level, name, value, size);
}
"""


def slow_close(folder: Path, each_ms: int) -> dict[str, str]:
    """Variables of ranks whose connections take so long to close, each."""
    source, library = folder / "slow_close.c", folder / "slow_close.so"
    source.write_text(_SOURCE)
    compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return {"LD_PRELOAD": str(library), "SLOW_CLOSE_MS": str(each_ms)}
