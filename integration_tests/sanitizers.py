"""A second Horovod, built with a sanitizer of the compiler, for whole ranks; used by fuzz, races, kills and addresses.

Horovod's own sources are instrumented too, so that its synchronisation is known. A report of ThreadSanitizer is ours if
the innermost frame of Horovod or Paceline in either access is Paceline's. Reports of Horovod's own are counted and
shown, and do not fail a run. A report of AddressSanitizer ends its rank.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
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
    """A sanitizer. `name`: the compiler's name for it; `mark`: a symbol in all code built with it.

    `libraries`: its run-time library, and libraries to load after it. `options`: its options in ranks.
    """

    name: str
    libraries: tuple[str, ...]
    mark: bytes
    options: str

    @property
    def flag(self) -> str:
        """Flag for the compiler and the linker."""
        return f"-fsanitize={self.name}"


THREAD = Sanitizer(
    "thread",
    ("libtsan.so",),
    b"__tsan_write",
    # Python, the frameworks and Gloo's callers are not instrumented: their own accesses are ignored.
    "exitcode=0 ignore_noninstrumented_modules=1 history_size=4 report_thread_leaks=0 report_signal_unsafe=0",
)
ADDRESS = Sanitizer(
    "address",
    # Preloaded before Python's own: the sanitizer must also see exceptions of libraries that are loaded later.
    ("libasan.so", "libstdc++.so"),
    b"__asan_report",
    # Python and the frameworks keep memory until the end, share names, and free memory with another function than they
    # allocated it with.
    "exitcode=99 detect_leaks=0 detect_odr_violation=0 alloc_dealloc_mismatch=0 new_delete_type_mismatch=0",
)
BY_NAME = {sanitizer.name: sanitizer for sanitizer in (THREAD, ADDRESS)}
NONE = "none"

_REPORT = re.compile(r"^WARNING: ThreadSanitizer: (.+?) \(pid=", re.MULTILINE)
_FRAME = re.compile(r"^ +#\d+ (.+)$", re.MULTILINE)
_OURS = ("horovod::paceline::", "paceline::core::", "horovod_paceline_")
_HOST = ("horovod::common::", "horovod::torch::", "horovod_")


@dataclass(frozen=True)
class Report:
    """One report of ThreadSanitizer: its kind, the functions of its accesses, and its text."""

    kind: str
    places: tuple[str, ...]
    text: str

    @property
    def ours(self) -> bool:
        """True if core or bridge made one of the accesses."""
        return any(place.startswith(_OURS) for place in self.places)


def reports(text: str) -> list[Report]:
    """Return the reports in a log. A stack with no frame of Horovod or Paceline has no place."""
    found = []
    for block in text.split("=================="):
        kind = _REPORT.search(block)
        if kind is None:
            continue
        places = []
        # The stacks of the accesses come first, then the stacks of the creation of threads and memory.
        for stack in block.split("\n\n")[:2]:
            frames = [frame.split("(")[0].split("<")[0] for frame in _FRAME.findall(stack)]
            places += [frame for frame in frames if frame.startswith(_OURS + _HOST)][:1]
        found.append(Report(kind[1], tuple(places), block.strip()))
    return found


def add_argument(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--sanitizer NAME`, for `chosen_env`."""
    parser.add_argument("--sanitizer", choices=[*BY_NAME, NONE], default=default, help=f"{NONE}: the installed Horovod")


def chosen_env(name: str, folder: Path, console: Console) -> dict[str, str]:
    """Environment of ranks for this `--sanitizer`; empty for NONE."""
    return {} if name == NONE else ranks_env(BY_NAME[name], folder, console)


def ranks_env(sanitizer: Sanitizer, folder: Path, console: Console) -> dict[str, str]:
    """Build Horovod for PyTorch with it (then cached), install it into `folder`; return the environment for ranks.

    Reports go to files `log.*` in `folder`. Raises SystemExit if the compiler has no such sanitizer.
    """
    with variables(CXXFLAGS=f"{sanitizer.flag} -g", LDFLAGS=sanitizer.flag, **TORCH_ALONE):
        wheel = build.build(config.read(), report=lambda line, _done: console.print(line))
    site = folder / "site"
    overlay(wheel, site)
    for library in site.glob("horovod/*/mpi_lib*.so"):
        assert sanitizer.mark in library.read_bytes(), f"{library} was built without {sanitizer.flag}"
    return {
        "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
        "LD_PRELOAD": " ".join(map(_compilers, sanitizer.libraries)),
        f"{sanitizer.name[0].upper()}SAN_OPTIONS": f"log_path={folder / 'log'} {sanitizer.options}",
    }


def joined(env: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Merge two environments; LD_PRELOAD has the libraries of `env`, then the libraries of `more`."""
    preloads = " ".join(variables["LD_PRELOAD"] for variables in (env, more) if "LD_PRELOAD" in variables)
    return {**env, **more} | ({"LD_PRELOAD": preloads} if preloads else {})


def verdict(found: list[str], console: Console, made_on_purpose: str = "") -> bool:
    """Print a summary of the reports in the logs `found`; return True if none is about core or bridge.

    `made_on_purpose`: name of a library whose races are ignored.
    """
    races = [report for log in found for report in reports(log)]
    if made_on_purpose:
        races = [report for report in races if made_on_purpose not in report.text]
    addresses = [Report("access beyond memory", (), log) for log in found if "AddressSanitizer" in log]
    ours = [report for report in races if report.ours] + addresses
    others = [report for report in races if not report.ours]
    for title, chosen in (("Reports about core and bridge", ours), ("Others (Horovod's own accesses)", others)):
        console.print(f"{title}: {len(chosen)} in all")
        for (kind, places), count in Counter((report.kind, report.places) for report in chosen).most_common():
            place = " | ".join(places) or "neither in Horovod nor in Paceline"
            console.print(f"  {count} x {kind}: {place}", markup=False)
    for report in ours[:1]:
        console.print(report.text[:10_000], markup=False)
    return not ours


def faulty_library(sanitizer: Sanitizer, folder: Path, name: str, source: str) -> Path:
    """Build the library `name`.so of C++ `source` with a deliberate fault: the sanitizer must report it."""
    text, library = folder / f"{name}.cc", folder / f"{name}.so"
    text.write_text(source)
    command = [_compiler(), sanitizer.flag, "-g", "-fPIC", "-shared", str(text), "-o", str(library)]
    subprocess.run(command, check=True, timeout=120)
    return library


def logs(folder: Path) -> list[str]:
    return [log.read_text(errors="replace") for log in sorted(folder.glob("log.*"))]


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _compilers(library: str) -> str:
    """Full path of one of the compiler's libraries. Raises SystemExit if it has none of that name."""
    command = [_compiler(), f"-print-file-name={library}"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    path = Path(answer.stdout.strip())
    if not path.is_absolute():
        sys.exit(f"{_compiler()} has no {library}. Install the sanitizers of this compiler.")
    return str(path.resolve())
