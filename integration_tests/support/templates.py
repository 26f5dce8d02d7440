"""Job files as `paceline template` writes them."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from paceline.launch import cli


def made(folder: Path, scheduler: str, *words: str) -> Path:
    """The file that `paceline template SCHEDULER WORDS` writes into `folder`."""
    place = folder / f"{scheduler}.job"
    result = CliRunner().invoke(cli.main, ["template", scheduler, "-o", str(place), *words])
    assert result.exit_code == 0, result.output
    return place
