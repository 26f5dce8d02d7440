"""Horovod's source tree with hooks, patches and Paceline's sources, ready to build."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import paceline.bridge
import paceline.core
from paceline.config import nearest
from paceline.errors import UserError
from paceline.horovod import edits
from paceline.horovod.hooks import HOOKS
from paceline.horovod.patches.table import GLUE, PATCHES

# Places of Paceline's sources in Horovod's tree; the C++ folder is on the include path.
CPP_FOLDER = "paceline"
PYTHON_FOLDER = "horovod/_paceline"
# Files of the core that the bridge includes. Others are for Python only, and a change of them needs no new Horovod.
CORE_IN_HOST = (
    "active_plan",
    "arguments",
    "events",
    "gate",
    "holdups",
    "interface",
    "lateness",
    "memory_pool",
    "merge_plan",
    "message_packing",
    "monitor",
    "slots",
    "round_coordinator",
    "round_state",
    "standstill",
    "votes",
    "waiting",
)
# Folders of the core that the bridge includes as a whole.
ROOMS_IN_HOST = (
    "armed",
    "codecs",
    "collectives",
    "coordination",
    "failure",
    "naming",
    "numerics",
    "record",
    "settings",
    "text",
    "transport",
)

# Hooks that do not call Paceline, but that the bridge is compiled against.
_BENEATH = ("include", "submitted", "on_completion", "lengths")
LEAVABLE = ("hooks", *(patch.name for patch in PATCHES))


def _folder(package: object) -> Path:
    return Path(str(package.__file__)).parent  # type: ignore[attr-defined]


def our_sources() -> dict[str, Path]:
    """Return Paceline's files for Horovod's tree, by their place in it."""
    files = {}
    for name, package in (("core", paceline.core), ("bridge", paceline.bridge)):
        folder = _folder(package)
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".cc", ".h") and (
                package is paceline.bridge or path.stem in CORE_IN_HOST or path.parent.name in ROOMS_IN_HOST
            ):
                files[f"{CPP_FOLDER}/{name}/{path.relative_to(folder)}"] = path
    files[f"{PYTHON_FOLDER}/__init__.py"] = Path(__file__).with_name("handover.py")
    return files


def all_edits(leave_out: Collection[str] = ()) -> list[edits.Edit]:
    """Return every edit. `leave_out` names patches, or "hooks", for tests that show the effect of each."""
    for name in leave_out:
        if name not in LEAVABLE:
            raise UserError(f"{name!r} is neither 'hooks' nor a patch.", nearest(name, list(LEAVABLE)))
    chosen = list(GLUE)
    for point, rows in HOOKS.items():
        if "hooks" not in leave_out or point in _BENEATH:
            chosen += rows
    for patch in PATCHES:
        if patch.name not in leave_out:
            chosen += patch.edits
    return chosen


def prepare(source: Path, leave_out: Collection[str] = ()) -> None:
    """Apply all edits in the tree at `source`, and copy Paceline's sources to it.

    Raises UserError if an anchor does not match.
    """
    by_file: dict[str, list[edits.Edit]] = {}
    for edit in all_edits(leave_out):
        by_file.setdefault(edit.file, []).append(edit)
    for name, rows in by_file.items():
        path = source / name
        text = path.read_text()
        for edit in rows:
            text = edits.apply(text, edit)
        path.write_text(text)
    for name, path in our_sources().items():
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
