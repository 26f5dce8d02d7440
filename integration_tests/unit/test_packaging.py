"""The installed wheel: complete, and usable without frameworks; built and tried in a copy of the tree."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from integration_tests.support.packages import ROOT, declared, shipped

pytestmark = pytest.mark.more

# The same programs, without the environment of a developer's shell or pytest.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONNOUSERSITE": "1"}
BUILD_TIMEOUT_S = 240
COMMAND_TIMEOUT_S = 60


def _run(*command: str | Path, cwd: Path, timeout_s: float = COMMAND_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=cwd,
        env={**ENVIRONMENT, "HOME": str(cwd)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip wheel .` makes of a copy without files of earlier builds."""
    copy = tmp_path_factory.mktemp("packaging") / "tree"
    copy.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    leftovers = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for top in sorted({folder.relative_to(ROOT).parts[0] for folder in shipped().values()}):
        shutil.copytree(ROOT / top, copy / top, ignore=leftovers)
    done = _run(
        sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-index", "--no-build-isolation", "-w", "out",
        cwd=copy, timeout_s=BUILD_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    (made,) = (copy / "out").glob("paceline-*.whl")
    return made


@pytest.mark.timeout(BUILD_TIMEOUT_S + COMMAND_TIMEOUT_S)
def test_wheel_has_every_package_and_its_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        present = set(archive.namelist())
    data = declared("package_data")
    for name, folder in shipped().items():
        patterns = ["*.py", *data[""], *data.get(name, [])]
        place = name.replace(".", "/")
        wanted = {f"{place}/{path.relative_to(folder)}" for pattern in patterns for path in folder.glob(pattern)}
        assert wanted and wanted <= present, f"{name} lacks {sorted(wanted - present)}"
    # Files that building Horovod and `paceline template` need from an installed Paceline.
    for pattern in (
        r"core/.*\.cc", r"core/.*\.h", r"bridge/.*\.cc", r"bridge/.*\.h", r"horovod/.*\.cmake", r"py\.typed",
        r"launch/templates/slurm/.*\.template",
    ):  # fmt: skip
        assert any(re.fullmatch(f"paceline/{pattern}", path) for path in present), f"nothing like {pattern}"
    assert any(re.fullmatch(r"paceline/core/_core\..*\.so", path) for path in present)
    left_out = ("paceline/examples/benchmarks", "paceline/examples/reproduction")
    assert not any(path.startswith(left_out) for path in present), "measuring is done in a clone"
    foreign = {path for path in present if path.split("/")[0] not in ("paceline",) and ".dist-info/" not in path}
    assert not foreign
    assert any(path.endswith("/licenses/LICENSE") for path in present)


def _closure(requirement: str, seen: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """Yield the distribution that meets the requirement and all its requirements, each once."""
    parsed = Requirement(requirement)
    name = re.sub(r"[-_.]+", "-", parsed.name).lower()
    if name in seen or (parsed.marker and not parsed.marker.evaluate({"extra": ""})):
        return
    seen.add(name)
    found = importlib.metadata.distribution(parsed.name)
    yield found
    for further in found.requires or []:
        yield from _closure(further, seen)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with only the wheel and its declared requirements.

    The requirements are linked from this environment, so that no network is needed.
    """
    place = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    done = _run(
        sys.executable, "-m", "pip", "--python", place / "bin/python", "install", "--no-deps", "--no-index", wheel,
        cwd=place,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    (site,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (path for path in archive.namelist() if path.endswith(".dist-info/METADATA"))
        needs = re.findall(r"^Requires-Dist: (.*)$", archive.read(path).decode(), re.MULTILINE)
    seen: set[str] = set()
    for requirement in needs:
        for distribution in _closure(requirement, seen):
            for file in distribution.files or []:
                top = Path(str(distribution.locate_file(file.parts[0])))
                if file.parts[0] not in ("..", "__pycache__", "bin") and not (site / top.name).exists():
                    (site / top.name).symlink_to(top)
    return place


@pytest.mark.timeout(BUILD_TIMEOUT_S + COMMAND_TIMEOUT_S)
def test_installed_wheel_works_without_frameworks_and_says_what_to_do_without_horovod(environment: Path) -> None:
    for framework in ("torch", "tensorflow", "keras", "horovod"):
        found = _run(environment / "bin/python", "-c", f"import {framework}", cwd=environment)
        assert "ModuleNotFoundError" in found.stdout, f"{framework} is in the scratch environment: {found.stdout}"
    done = _run(environment / "bin/python", "-c", "import paceline.core._core as c; print(c.__doc__)", cwd=environment)
    assert (done.returncode, done.stdout) == (0, "Paceline's core algorithms\n"), done.stdout

    done = _run(environment / "bin/paceline", "--help", cwd=environment)
    assert done.returncode == 0, done.stdout
    for command in ("horovod", "run", "record", "demo"):
        assert re.search(rf"^\s+{command}\s", done.stdout, re.MULTILINE), done.stdout
    # `paceline horovod check` names the remedy if Horovod is not installed.
    done = _run(environment / "bin/paceline", "horovod", "check", cwd=environment)
    assert done.returncode != 0, done.stdout
    assert "Traceback" not in done.stdout
    assert "paceline horovod install" in done.stdout
