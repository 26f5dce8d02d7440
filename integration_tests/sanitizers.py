"""A second Horovod, built with a sanitizer of the compiler, for whole ranks: what races.py and addresses.py share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from integration_tests.patches import overlay
from integration_tests.support.merging import variables
from integration_tests.support.ranks import ROOT
from paceline import config
from paceline.horovod import build

# Ranks use this framework only; the other one would double the time of the build.
TORCH_ALONE = {"HOROVOD_WITHOUT_TENSORFLOW": "1", "HOROVOD_WITH_TENSORFLOW": "0"}


@dataclass(frozen=True)
class Sanitizer:
    """`name`: as the compiler calls it; `library`: its run-time part; `mark`: a symbol in all code built with it."""

    name: str
    library: str
    mark: bytes

    @property
    def flag(self) -> str:
        """What the compiler and the linker are given."""
        return f"-fsanitize={self.name}"


THREAD = Sanitizer("thread", "libtsan.so", b"__tsan_write")
ADDRESS = Sanitizer("address", "libasan.so", b"__asan_report")


def ranks_env(
    sanitizer: Sanitizer, folder: Path, console: Console, options: str, beside: Sequence[str] = ()
) -> dict[str, str]:
    """Build Horovod for PyTorch with it (cached afterwards), install that into `folder`; what ranks need to use it.

    `options`: the sanitizer's; what it finds goes to files `log.*` in `folder`. `beside`: libraries to load after its
    own. Raises SystemExit if the compiler has no such sanitizer.
    """
    with variables(CXXFLAGS=f"{sanitizer.flag} -g", LDFLAGS=sanitizer.flag, **TORCH_ALONE):
        wheel = build.build(config.read(), report=lambda line, _done: console.print(line))
    site = folder / "site"
    overlay(wheel, site)
    for library in site.glob("horovod/*/mpi_lib*.so"):
        assert sanitizer.mark in library.read_bytes(), f"{library} was built without {sanitizer.flag}"
    return {
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
        "LD_PRELOAD": " ".join(_compilers(name) for name in (sanitizer.library, *beside)),
        f"{sanitizer.name[0].upper()}SAN_OPTIONS": f"log_path={folder / 'log'} {options}",
    }


def faulty_library(sanitizer: Sanitizer, folder: Path, name: str, source: str) -> Path:
    """The library `name`.so of C++ `source`, with a fault in it that has to be reported before none is believed."""
    text, library = folder / f"{name}.cc", folder / f"{name}.so"
    text.write_text(source)
    command = [_compiler(), sanitizer.flag, "-g", "-fPIC", "-shared", str(text), "-o", str(library)]
    subprocess.run(command, check=True, timeout=120)
    return library


def logs(folder: Path) -> list[str]:
    """What the sanitizer wrote, by process."""
    return [log.read_text(errors="replace") for log in sorted(folder.glob("log.*"))]


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _compilers(library: str) -> str:
    """The full path of a library of the compiler's. Raises SystemExit if it has none of that name."""
    command = [_compiler(), f"-print-file-name={library}"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    path = Path(answer.stdout.strip())
    if not path.is_absolute():
        sys.exit(f"{_compiler()} has no {library}. Install the sanitizers of this compiler.")
    return str(path.resolve())
