"""Libraries in C that processes of a test load first (LD_PRELOAD), to see or change their system calls."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def compiled(folder: Path, source: Path) -> Path:
    """Compile a C source into a library in `folder`, and return its path."""
    library = folder / f"{source.stem}.so"
    compiler = shutil.which("gcc") or shutil.which("cc") or "cc"
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return library
