"""Connections that are closed slowly, as hundreds of them are: a library that ranks load first."""

from __future__ import annotations

from pathlib import Path

from integration_tests.support.preload import compiled

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
    source = folder / "slow_close.c"
    source.write_text(_SOURCE)
    return {"LD_PRELOAD": str(compiled(folder, source)), "SLOW_CLOSE_MS": str(each_ms)}
