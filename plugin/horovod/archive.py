"""Horovod's published source archive: downloaded once, verified at every use."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from paceline.errors import UserError
from paceline.horovod import pip
from paceline.horovod.release import ARCHIVE_NAME, ARCHIVE_SHA256, HOROVOD_VERSION

DOWNLOAD_TIMEOUT_S = 600


def _verify(archive: Path) -> None:
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != ARCHIVE_SHA256:
        raise UserError(
            f"{archive} is not Horovod's published archive: its sha256 is {found}, expected {ARCHIVE_SHA256}.",
            f"Delete that file and run the command again to download it, or put the right {ARCHIVE_NAME} in its place.",
        )


def _download(folder: Path) -> str:
    """Download the archive to `folder` with pip; return its standard error if that fails."""
    command = pip.command("download", "--quiet", "--no-deps", "--no-binary", "horovod", "--require-hashes")
    command += ["--no-build-isolation", "--dest", str(folder)]
    wanted = folder / "requirements.txt"
    wanted.write_text(f"horovod=={HOROVOD_VERSION} --hash=sha256:{ARCHIVE_SHA256}\n")
    try:
        result = subprocess.run(
            [*command, "-r", str(wanted)], capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {DOWNLOAD_TIMEOUT_S} s"
    return result.stderr.strip() if result.returncode else ""


def fetch(cache_dir: Path) -> Path:
    """Return the verified archive in `cache_dir`; pip downloads it if it is missing.

    pip runs an archive's setup.py to get its name. It therefore gets the hash, which it checks before it runs anything,
    and fetches no build tools for that. Raises UserError if the archive cannot be downloaded or its hash is wrong.
    """
    archive = cache_dir / ARCHIVE_NAME
    if not archive.exists():
        cache_dir.mkdir(parents=True, exist_ok=True)
        # Other processes may download at the same time, so the archive appears atomically.
        with tempfile.TemporaryDirectory(prefix="download-", dir=cache_dir) as folder:
            failure = _download(Path(folder))
            if (Path(folder) / ARCHIVE_NAME).exists():
                (Path(folder) / ARCHIVE_NAME).replace(archive)
        if not archive.exists():
            errors = [line for line in failure.splitlines() if "ERROR" in line] or failure.splitlines()[-1:]
            raise UserError(
                f"Horovod {HOROVOD_VERSION} could not be downloaded by pip: {' '.join(errors) or 'no reason given'}",
                f"Check the network and pip's settings, or put {ARCHIVE_NAME} (sha256 {ARCHIVE_SHA256}) "
                f"into {cache_dir} by hand (docs/guides/offline.md).",
            )
    _verify(archive)
    return archive


def unpack(archive: Path, into: Path) -> Path:
    """Unpack the archive below `into`; return the folder with Horovod's setup.py."""
    with tarfile.open(archive) as tar:
        if sys.version_info >= (3, 12):
            tar.extractall(into, filter="data")
        else:
            tar.extractall(into)  # the hash was verified
    return into / ARCHIVE_NAME.removesuffix(".tar.gz")
