"""Wheels that are copied to another machine: written with their digest, checked before they are installed."""

from __future__ import annotations

import shutil
import sysconfig
import zipfile
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import check, shelf
from paceline.horovod.check import Finding

_SUFFIX = ".sha256"


def write(wheel: Path, folder: Path) -> Path:
    """Copy `wheel` to `folder` together with a file for `sha256sum -c`. Returns the copy."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copy = Path(shutil.copy(wheel, folder))
        copy.with_name(copy.name + _SUFFIX).write_text(f"{shelf.digest(copy)}  {copy.name}\n")
    except OSError as error:
        raise UserError(
            f"The wheel cannot be written to {folder}: {error.strerror}.",
            f"Name another folder, or take it from the cache: {wheel}",
        ) from None
    return copy


def read(wheel: Path) -> None:
    """Raise UserError unless Paceline built `wheel`, it is unchanged, and it fits this machine."""
    digest_file = wheel.with_name(wheel.name + _SUFFIX)
    try:
        expected = digest_file.read_text().split()[0] if digest_file.exists() else None
        if expected is not None and shelf.digest(wheel) != expected:
            raise UserError(
                f"{wheel} was damaged or changed on its way: its sha256 is not the one in {digest_file.name}.",
                "Copy both files again.",
            )
        with zipfile.ZipFile(wheel) as archive:
            inputs = check.inputs_in(archive.read(f"horovod/{check.BUILD_INFO}").decode())
    except (OSError, KeyError, SyntaxError, zipfile.BadZipFile) as error:
        reason = error.strerror if isinstance(error, OSError) else "it does not say what it was built from"
        raise UserError(
            f"{wheel} is not a wheel of Horovod that Paceline built: {reason}.",
            "Make one with `paceline horovod build -o FOLDER` on a machine with the same Python and frameworks.",
        ) from None
    here = sysconfig.get_config_var("SOABI")
    rows = [Finding("Python", inputs["python"], here, inputs["python"] == here)]
    rows += check.findings_of(wheel.name.split("-")[1], inputs)
    wrong = [f"{row.what}: found {row.found}, expected {row.expected}" for row in rows if not row.ok]
    if wrong:
        raise UserError(
            f"{wheel.name} does not fit this machine: {'; '.join(wrong)}.",
            "Build it with the Paceline, Python and frameworks that are installed here, or install here what it names.",
        )
