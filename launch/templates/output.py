"""Write a file as a whole or not at all, and overwrite none without request."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from paceline.errors import UserError


def write(path: Path, text: str, force: bool) -> None:
    """Write `text` to `path`. Raises UserError if that fails, or if the file exists and `force` is not set.

    It is written to a temporary file and then moved: readers see all of it, and after a failure (a full disk, Ctrl-C)
    the old file is unchanged.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder.", "Name a file with -o.")
    if not force and path.exists():
        raise UserError(f"{path} exists already.", "Name another file with -o, or overwrite it with --force.")
    name = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            name = Path(file.name)
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        name.chmod(0o666 & ~mask)  # as any new file; temporary ones are private
        name.replace(path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}.", "Name another file with -o, in a folder that is yours."
        ) from None
    finally:
        if name is not None:
            name.unlink(missing_ok=True)
