"""The notebook of the first hour: its cells run, and the kept outputs are those of its commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support.packages import ROOT

NOTEBOOK = Path(ROOT / "docs" / "start" / "first_hour.ipynb")
LIMIT_S = 300


def cells(kind: str) -> list[dict[str, Any]]:
    """Return the cells of this kind, "code" or "markdown", with their text as `source`."""
    found = json.loads(NOTEBOOK.read_text())["cells"]
    return [{**one, "source": "".join(one["source"])} for one in found if one["cell_type"] == kind]


def python_of(source: str) -> str:
    """Return the code of a cell with its shell commands as calls of shell()."""
    return re.sub(r"^!(.*)$", lambda line: f"shell({line[1]!r})", source, flags=re.MULTILINE)


def test_outputs_are_kept_and_without_errors() -> None:
    for number, cell in enumerate(cells("code")):
        compile(python_of(cell["source"]), f"cell {number}", "exec")
        assert not [one for one in cell["outputs"] if one["output_type"] == "error"], cell["source"]
        assert cell["outputs"] or number == 0 or "> build" in cell["source"], cell["source"]


def test_links_have_targets() -> None:
    links = [link for cell in cells("markdown") for link in re.findall(r"\]\(([^)]+)\)", cell["source"])]
    assert len(links) > 5
    for link in links:
        assert link.startswith("https://") or (NOTEBOOK.parent / link).exists(), link


@pytest.mark.more
def test_cells_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(NOTEBOOK.parent)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def shell(command: str) -> None:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=LIMIT_S)
        # The doctor may warn about this machine.
        right = "errors: 0" in done.stdout if command == "paceline doctor" else done.returncode == 0
        assert right, f"{command}\n{done.stdout}\n{done.stderr}"

    names: dict[str, Any] = {"shell": shell}
    for cell in cells("code"):
        exec(python_of(cell["source"]), names)
