"""Everything that names versions of Python or a framework, or packages to install, agrees with plugin/versions.py."""

from __future__ import annotations

import importlib.metadata
import re

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from integration_tests.support.packages import ROOT
from paceline import versions
from paceline.extras import how_to_install
from paceline.launch.doctor import installed
from paceline.launch.doctor.findings import Severity

FRAMEWORKS = pytest.mark.parametrize("name", versions.FRAMEWORKS)
PYPROJECT = (ROOT / "pyproject.toml").read_text()
WORKFLOW = (ROOT / ".github/workflows/ci.yml").read_text()
# Python and file of constraints of each job, in order.
JOBS = re.findall(r'\{ python: "([\d.]+)", .*constraints: "?([^"\s]*)"? \}', WORKFLOW)


def lines_of(name: str) -> dict[str, list[str]]:
    """Specifiers by package in a file of constraints: several where Pythons differ."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / ".ci" / name).read_text().splitlines():
        if not line.startswith("#"):
            requirement = Requirement(line)
            found.setdefault(requirement.name, []).append(str(requirement.specifier))
    return found


@FRAMEWORKS
def test_extra_allows_the_supported_releases_and_make_installs_a_tested_one(name: str) -> None:
    one, package = versions.FRAMEWORKS[name], versions.distribution(name)
    extras = PYPROJECT.partition("[project.optional-dependencies]")[2].partition("[project.scripts]")[0]
    (declared,) = re.findall(rf'"{package}([<>=~!][^"]*)"', extras)
    assert SpecifierSet(declared) == SpecifierSet(one.specifier)
    for release in one.releases:
        assert f"{release}.7" in SpecifierSet(declared)
    major, minor = Version(one.releases[-1]).release
    assert f"{major}.{minor + 1}.0" not in SpecifierSet(declared)
    # Make installs a tested release.
    one, pins = versions.FRAMEWORKS[name], lines_of("constraints.txt")[versions.distribution(name)]
    assert all(one.is_supported(pin.removeprefix("==")) for pin in pins)
    assert any(one.is_tested(pin.removeprefix("==")) for pin in pins)
    if one.pinned:
        assert pins == [f"=={one.pinned}"]


def test_pyproject_and_ci_name_the_supported_pythons_the_ends_with_the_oldest_and_the_newest_frameworks() -> None:
    assert (ROOT / ".ci/oldest.txt").read_text().partition("\n")[2] == versions.oldest()
    releases = versions.PYTHON.releases
    assert f'requires-python = ">={releases[0]}"' in PYPROJECT
    assert tuple(re.findall(r'"Programming Language :: Python :: (\d+\.\d+)"', PYPROJECT)) == releases
    assert tuple(python for python, _ in JOBS) == releases
    files = [file for _, file in JOBS]
    assert (files[0], files[-1]) == (".ci/oldest.txt", "")
    assert set(files[1:-1]) == {".ci/constraints.txt"}


@pytest.mark.parametrize("page", ["README.md", "docs/developers/horovod.md"])
def test_pages_have_the_table(page: str) -> None:
    assert f"-->\n{versions.markdown_table()}<!--" in (ROOT / page).read_text(), "run .ci/versions"


@pytest.mark.parametrize("one", [versions.PYTHON, *versions.FRAMEWORKS.values()], ids=lambda one: one.title)
def test_what_is_tested_is_supported(one: versions.Supported) -> None:
    assert one.tested and set(one.tested) <= set(one.releases)
    assert sorted(one.releases, key=Version) == list(one.releases)


def doctor_says(monkeypatch: pytest.MonkeyPatch, torch: str, keras: str = "3.15.1") -> list[tuple[str, Severity, str]]:
    monkeypatch.setattr(installed, "installed_frameworks", lambda: {"torch": torch})
    monkeypatch.setattr("platform.python_version", lambda: versions.PYTHON.tested[0] + ".7")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"keras": keras}[name])
    return [(one.what, one.severity, one.found + one.remedy) for one in installed.tested()]


def test_doctor_says_what_is_tested_and_what_is_only_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    ((what, severity, text),) = doctor_says(monkeypatch, "2.13.0+cpu")
    assert (what, severity) == ("versions", Severity.OK)
    assert "PyTorch 2.13.0+cpu (tested)" in text and "Keras 3.15.1 (tested)" in text and "supported" not in text
    one = versions.Supported("PyTorch", ("2.12", "2.13"), ("2.13",))
    monkeypatch.setitem(versions.FRAMEWORKS, "torch", one)
    ((_, severity, text),) = doctor_says(monkeypatch, "2.12.1")
    assert severity is Severity.OK
    assert "PyTorch 2.12.1 (supported; tested are 2.13)" in text


@pytest.mark.parametrize("version", ["2.11.0", "2.16.0+cu132", "2.1.0", "3.13.0", "unknown"])
def test_an_unsupported_version_is_a_warning_with_the_range(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = doctor_says(monkeypatch, version)
    (text,) = (text for what, severity, text in findings if severity is Severity.WARNING)
    one = versions.FRAMEWORKS["torch"]
    assert version in text and one.span in text and f"pip install 'torch{one.specifier}'" in text
    assert findings[-1][0] == "versions" and "PyTorch" not in findings[-1][2]


_FROM_AN_INDEX = re.compile(r"pip install[^\n]*[ '\"]paceline\b(?!/)")


def test_command_has_the_packages_of_an_extra_that_is_there() -> None:
    command = how_to_install("torch")
    assert command.startswith("pip install ") and "paceline" not in command
    assert re.fullmatch(r"pip install '?torch[=<>!~].*", command)
    # Extra that is not there.
    with pytest.raises(ValueError, match="no extra 'mxnet'"):
        how_to_install("mxnet")


def test_no_message_names_paceline_as_a_package_of_an_index() -> None:
    for folder in ("plugin", "frameworks", "launch", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not _FROM_AN_INDEX.search(path.read_text()), path
