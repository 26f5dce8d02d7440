"""Getting and building Horovod: bad archives, missing tools and what names a wheel in the cache."""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline import config
from paceline.errors import UserError
from paceline.horovod import archive, build, check, install, key, shelf
from paceline.horovod.environment import environment
from paceline.horovod.load import HorovodMissing, load
from paceline.horovod.release import ARCHIVE_NAME, BUILT_VERSION, HOROVOD_VERSION


@pytest.fixture
def settings(tmp_path: Path) -> config.Settings:
    return config.read({"PACELINE_CACHE_DIR": str(tmp_path / "cache"), "PACELINE_BUILD_JOBS": "1"})


def test_a_corrupted_archive_is_refused(settings: config.Settings) -> None:
    settings.cache_dir.mkdir()
    (settings.cache_dir / ARCHIVE_NAME).write_bytes(b"not what was published")
    with pytest.raises(UserError) as error:
        archive.fetch(settings.cache_dir)
    assert "sha256" in error.value.problem
    assert str(settings.cache_dir / ARCHIVE_NAME) in error.value.problem
    assert "Delete" in error.value.remedy


def test_no_network_is_said_with_a_way_round_it(settings: config.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(UserError) as error:
        archive.fetch(settings.cache_dir)
    assert "could not be downloaded" in error.value.problem
    assert ARCHIVE_NAME in error.value.remedy
    assert str(settings.cache_dir) in error.value.remedy


def test_archive_with_another_hash_runs_nothing(
    settings: config.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "it ran"
    folder = tmp_path / ARCHIVE_NAME.removesuffix(".tar.gz")
    folder.mkdir()
    (folder / "setup.py").write_text(
        f"open({str(mark)!r}, 'w')\nfrom setuptools import setup\nsetup(name='horovod', version='{HOROVOD_VERSION}')\n"
    )
    (folder / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: horovod\nVersion: {HOROVOD_VERSION}\n")
    links = tmp_path / "links"
    links.mkdir()
    with tarfile.open(links / ARCHIVE_NAME, "w:gz") as tar:
        tar.add(folder, folder.name)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    with pytest.raises(UserError) as error:
        archive.fetch(settings.cache_dir)
    assert "could not be downloaded" in error.value.problem
    assert "DO NOT MATCH THE HASHES" in error.value.problem
    assert not mark.exists()
    assert not (settings.cache_dir / ARCHIVE_NAME).exists()


def test_wheel_that_was_changed_in_the_cache_is_not_installed(tmp_path: Path) -> None:
    built = tmp_path / "horovod-0.28.1-py3-none-any.whl"
    built.write_bytes(b"a wheel")
    place = tmp_path / "shelf"
    assert shelf.found(place) is None
    wheel = shelf.put(built, place, {"from": "tests"})
    assert shelf.found(place) == wheel == shelf.put(built, place, {"from": "tests"})
    wheel.write_bytes(b"a whee")
    with pytest.raises(UserError, match="is not the wheel that was built") as error:
        shelf.found(place)
    assert "--force" in error.value.remedy
    with pytest.raises(UserError, match="is not the wheel that was built"):
        install.install(wheel)
    # --force builds again: the changed one goes. Another build of the same inputs has other bytes.
    built.write_bytes(b"the same, built again")
    again = shelf.put(built, place, {"from": "tests"})
    assert shelf.found(place) == again != wheel


@pytest.fixture
def only_python_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(folder))
    yield


@pytest.mark.usefixtures("only_python_on_path")
def test_missing_tools_are_named_with_their_packages(settings: config.Settings) -> None:
    with pytest.raises(UserError) as error:
        build.build(settings)
    assert "c++, cmake, make" in error.value.problem
    assert "apt-get install cmake g++ make" in error.value.remedy


def test_the_key_follows_everything_that_goes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = key.key(build.wanted())
    assert key.key(build.wanted()) == plain
    assert key.key(build.wanted(leave_out=["hooks"])) != plain
    assert key.key(build.wanted(leave_out=["keras3"])) not in (plain, key.key(build.wanted(leave_out=["hooks"])))
    monkeypatch.setenv("HOROVOD_DEBUG", "1")
    assert key.key(build.wanted()) != plain


def test_the_users_build_variables_pass_through(
    settings: config.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    made = environment(tmp_path, settings, False, {"torch": "2.13.0"}, {"CUDA_HOME": "/cuda"})
    assert made["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert made["HOROVOD_CUDA_HOME"] == made["CUDA_HOME"] == "/cuda"
    assert made["HOROVOD_WITH_PYTORCH"] == "1"
    assert made["HOROVOD_WITHOUT_TENSORFLOW"] == "1"
    assert made["MAKEFLAGS"] == "-j1"


def test_the_installed_horovod_is_the_expected_one() -> None:
    wrong = [row for row in check.findings() if not row.ok]
    assert not wrong
    assert check.findings()[0].found == BUILT_VERSION


def test_a_host_built_for_another_framework_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "installed_frameworks", lambda: {"torch": "9.9.9", "tensorflow": "1.0"})
    with pytest.raises(HorovodMissing) as error:
        load("torch")
    assert "built for torch: found" in error.value.problem
    assert "9.9.9" in error.value.problem
    assert "tensorflow" not in error.value.problem
    assert "paceline horovod install" in error.value.remedy


def test_the_check_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "installed_frameworks", lambda: {"torch": "9.9.9"})
    monkeypatch.setenv("PACELINE_DEBUG", "check_horovod=no")
    assert load("torch").init


def test_a_host_with_other_hooks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "changes_digest", lambda _left_out=(): "something newer")
    with pytest.raises(HorovodMissing, match="hooks and patches"):
        load("torch")
