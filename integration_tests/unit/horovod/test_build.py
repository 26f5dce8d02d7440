"""Getting and building Horovod: bad archives, missing tools and what names a wheel in the cache."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from paceline import config
from paceline.errors import UserError
from paceline.horovod import archive, build, check, install, key, shelf
from paceline.horovod.environment import environment
from paceline.horovod.load import HorovodMissing, load
from paceline.horovod.release import ARCHIVE_NAME, BUILT_VERSION, HOROVOD_VERSION


def test_a_corrupted_archive_is_refused(settings: config.Settings) -> None:
    settings.cache_dir.mkdir()
    (settings.cache_dir / ARCHIVE_NAME).write_bytes(b"not what was published")
    with pytest.raises(UserError) as error:
        archive.fetch(settings.cache_dir)
    assert "sha256" in error.value.problem
    assert str(settings.cache_dir / ARCHIVE_NAME) in error.value.problem
    assert "Delete" in error.value.remedy


def test_an_archive_that_cannot_be_downloaded_or_has_another_hash_runs_nothing(
    settings: config.Settings, tmp_path: Path, without_index: Path
) -> None:
    with pytest.raises(UserError) as error:
        archive.fetch(settings.cache_dir)
    assert "could not be downloaded" in error.value.problem
    assert ARCHIVE_NAME in error.value.remedy and str(settings.cache_dir) in error.value.remedy
    mark = tmp_path / "it ran"
    folder = tmp_path / ARCHIVE_NAME.removesuffix(".tar.gz")
    folder.mkdir()
    (folder / "setup.py").write_text(
        f"open({str(mark)!r}, 'w')\nfrom setuptools import setup\nsetup(name='horovod', version='{HOROVOD_VERSION}')\n"
    )
    (folder / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: horovod\nVersion: {HOROVOD_VERSION}\n")
    with tarfile.open(without_index / ARCHIVE_NAME, "w:gz") as tar:
        tar.add(folder, folder.name)
    with pytest.raises(UserError, match="DO NOT MATCH THE HASHES"):
        archive.fetch(settings.cache_dir)
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


def test_missing_tools_are_named_with_their_packages(
    settings: config.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
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


def test_an_installed_horovod_that_is_not_the_expected_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [row for row in check.findings() if not row.ok]
    assert check.findings()[0].found == BUILT_VERSION
    monkeypatch.setattr(check, "installed_frameworks", lambda: {"torch": "9.9.9", "tensorflow": "1.0"})
    with pytest.raises(HorovodMissing) as error:
        load("torch")
    assert "built for torch: found" in error.value.problem and "9.9.9" in error.value.problem
    assert "tensorflow" not in error.value.problem
    assert "paceline horovod install" in error.value.remedy
    with monkeypatch.context() as unchecked:
        unchecked.setenv("PACELINE_DEBUG", "check_horovod=no")
        assert load("torch").init
    monkeypatch.undo()
    monkeypatch.setattr(check, "changes_digest", lambda _left_out=(): "something newer")
    with pytest.raises(HorovodMissing, match="hooks and patches"):
        load("torch")
