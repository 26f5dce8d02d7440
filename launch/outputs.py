"""Checks of output files at the beginning of a command that writes them at its end."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check(path: Path, what: str) -> None:
    """Raise UserError if `path` cannot be written; `what`: its name for the user."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"The folder {folder} of {what} {path.name} does not exist.", "Make it, or name another.")
    if path.is_dir():
        raise UserError(f"{what.capitalize()} {path} is a folder.", "Name a file in it.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UserError(f"{what.capitalize()} {path} may not be written.", "Name a file in a folder you may write to.")


def check_picture(path: Path) -> None:
    """Raise UserError if no picture can be written to `path`."""
    check(path, "the picture")
    known = sorted(_matplotlib("backend_bases").FigureCanvasBase.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise UserError(
            f"The picture {path} cannot be drawn: {path.suffix or 'no ending'} is none of {', '.join(known)}.",
            "Name a .png, .pdf or .svg file.",
        )


def figure(**arguments: Any) -> Figure:
    """Return an empty figure; arguments are those of matplotlib.figure.Figure."""
    made: Figure = _matplotlib("figure").Figure(**arguments)
    return made


def _matplotlib(module: str) -> Any:
    """Import a module of matplotlib without MPLBACKEND, which it reads: files need no backend."""
    wanted = os.environ.pop("MPLBACKEND", None)
    try:
        return importlib.import_module(f"matplotlib.{module}")
    finally:
        if wanted is not None:
            os.environ["MPLBACKEND"] = wanted
