"""A wheel of Horovod that is carried to another machine: what is written, what is refused, and who agrees about it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.errors import UserError
from paceline.horovod import build, carried, check, install, key
from paceline.horovod.release import BUILT_VERSION
from paceline.launch import cli

COMMAND_TIMEOUT_S = 240


def wheel(folder: Path, **changed: Any) -> Path:
    """A wheel with nothing in it but what a build here would be made from, and what is `changed` of that."""
    folder.mkdir(exist_ok=True)
    made = folder / f"horovod-{BUILT_VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        text = f'"""What this Horovod was built from."""\n\nINPUTS = { ({**build.wanted(), **changed})!r}\n'
        archive.writestr(f"horovod/{check.BUILD_INFO}", text)
    return made


def test_written_wheel_comes_with_its_digest(tmp_path: Path) -> None:
    carried.read(wheel(tmp_path))  # without a digest
    copy = carried.write(wheel(tmp_path / "cache"), tmp_path / "carried")
    command = ["sha256sum", "-c", f"{copy.name}.sha256"]
    assert subprocess.run(command, cwd=copy.parent, capture_output=True, timeout=60).returncode == 0
    carried.read(copy)
    with copy.open("ab") as file:
        file.write(b"more")
    with pytest.raises(UserError, match="was damaged or changed on its way"):
        carried.read(copy)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"frameworks": {"torch": "1.0"}}, r"built for torch: found 1\.0, expected "),
        ({"changes": "other"}, "hooks and patches: found other, expected "),
        ({"python": "cpython-38"}, "Python: found cpython-38, expected cpython-3"),
    ],
    ids=["framework", "paceline", "python"],
)
def test_wheel_that_does_not_fit_is_refused(changed: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=problem) as error:
        carried.read(wheel(tmp_path, **changed))
    assert "does not fit this machine" in error.value.problem


def test_other_files_are_refused(tmp_path: Path) -> None:
    for content in (b"no wheel", b""):
        other = tmp_path / "horovod-0.28.1-py3-none-any.whl"
        other.write_bytes(content)
        with pytest.raises(UserError, match="is not a wheel of Horovod that Paceline built"):
            carried.read(other)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("horovod/__init__.py", "")
    with pytest.raises(UserError, match="does not say what it was built from") as error:
        install.install_carried(other)
    assert "paceline horovod build -o" in error.value.remedy
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written to"):
        carried.write(wheel(tmp_path / "cache"), tmp_path / "file" / "folder")


def test_install_agrees_with_check_about_a_wheel_of_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine has no compiler, and a wheel with MPI and of another compiler was installed."""
    for name in key.BUILD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    elsewhere = {**build.wanted(), "compiler": "g++ 99", "mpi": "Open MPI 4", "platform": "Linux, glibc 2.1"}
    monkeypatch.setattr(check, "built_from", lambda: elsewhere)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert all(row.ok for row in check.findings())
    done = CliRunner().invoke(cli.main, ["horovod", "install", "--cache-dir", str(tmp_path / "cache")])
    assert done.exit_code == 0 and "fits this Paceline" in done.output
    assert not install.is_installed(mpi=False)
    assert install.is_installed(mpi=True)
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    assert not install.is_installed(mpi=None)
    assert check.lacks(elsewhere, key.set_variables(), None) == ["HOROVOD_GPU_OPERATIONS=NCCL"]


def test_check_says_what_becomes_of_tensors_on_gpus() -> None:
    rows = {row.what: row for row in check.gpu_findings()}
    assert set(rows) == {f"GPU tensors in {name}" for name in key.installed_frameworks()}
    assert all(row.ok and row.found.startswith(("none: ", "work (")) for row in rows.values())


def test_environment_without_pip_is_told_what_to_install(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *p: None if n == 'pip' else f(n, *p)\n"
        "from paceline.horovod import requirements; requirements.tools(False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, cwd=tmp_path
    )
    assert "has no pip, which building and installing Horovod needs" in done.stderr
    assert "uv pip install pip" in done.stderr
