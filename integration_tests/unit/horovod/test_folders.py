"""Folders that a build of Horovod meets: without room, without programs, read-only, shared."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

import pytest

from integration_tests.support.mounts import run_mounted
from paceline import config
from paceline.errors import UserError
from paceline.horovod import build, key, requirements, shelf

COMMAND = (Path(sys.executable).with_name("paceline"), "horovod", "build")
COMMAND_TIMEOUT_S = 240
PUTS = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, to be mounted on."""
    made = tmp_path / "mounted"
    made.mkdir()
    return made


@pytest.mark.timeout(COMMAND_TIMEOUT_S)
@pytest.mark.parametrize(
    ("options", "problem", "remedy"),
    [
        ("size=8m", "has 8 MiB free; building Horovod needs ", "TMPDIR"),
        ("size=2g,noexec", "is mounted noexec", "TMPDIR="),
    ],
    ids=["no room", "noexec"],
)
def test_temporary_folder_that_does_not_do(
    options: str, problem: str, remedy: str, folder: Path, tmp_path: Path
) -> None:
    done = run_mounted(
        ["-t", "tmpfs", "-o", options, "none", str(folder)],
        [*COMMAND, "--cache-dir", tmp_path / "cache"],
        {"TMPDIR": str(folder)},
        COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"Error: The temporary folder {folder} ") and problem in first
    assert remedy in second


@pytest.mark.timeout(COMMAND_TIMEOUT_S)
def test_program_that_may_not_run_is_named(folder: Path, with_archive: config.Settings) -> None:
    """As where a security module forbids programs in temporary folders: only the build meets that."""
    body = (
        "from paceline import config; from paceline.horovod import build, requirements\n"
        "requirements.temporary_folder = lambda: None\n"
        "build.build(config.read())"
    )
    done = run_mounted(
        ["-t", "tmpfs", "-o", "size=2g,noexec", "none", str(folder)],
        [sys.executable, "-c", body],
        {"TMPDIR": str(folder), "PACELINE_CACHE_DIR": str(with_archive.cache_dir)},
        COMMAND_TIMEOUT_S,
    )
    assert "UserError: Horovod could not be built" in done.stderr
    assert "cmake-with-paceline" in done.stderr and "Permission denied" in done.stderr
    assert "one where programs may run" in done.stderr


def _wheel(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "horovod-0.28.1-py3-none-any.whl"
    made.write_text(content)
    return made


@pytest.mark.timeout(COMMAND_TIMEOUT_S)
def test_read_only_cache_that_has_the_wheel_is_used(folder: Path, tmp_path: Path) -> None:
    inputs = build.wanted()
    wheel = shelf.put(_wheel(tmp_path, "a wheel"), folder / "wheels" / key.key(inputs), inputs)
    read_only = ["--bind", str(folder), str(folder), "&&", "mount", "-o", "remount,ro,bind", str(folder)]
    command: list[str | Path] = [*COMMAND, "--cache-dir", folder]
    done = run_mounted(read_only, command, {}, COMMAND_TIMEOUT_S)
    assert (done.returncode, done.stdout.strip()) == (0, str(wheel)), done.stderr
    wheel.unlink()
    done = run_mounted(read_only, command, {}, COMMAND_TIMEOUT_S)
    assert done.returncode == 2
    assert "has no wheel for this build and cannot be written: Read-only file system" in done.stderr
    assert "--cache-dir" in done.stderr


def test_host_without_compiler_uses_a_wheel_of_another_host(
    tmp_path: Path, settings: config.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = build.wanted()
    wheel = shelf.put(_wheel(tmp_path, "a wheel"), settings.cache_dir / "wheels" / key.key(inputs), inputs)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert build.wanted()["compiler"] == "none"
    assert build.build(settings) == wheel
    monkeypatch.setenv("HOROVOD_DEBUG", "1")
    with pytest.raises(UserError, match="Building Horovod needs c"):
        build.build(settings)


def _put_many(name: str, folder: Path, place: Path) -> None:
    for number in range(PUTS):
        # The same from both, or one that differs as builds of different folders do.
        content = "alike" if number % 2 else f"{name} {number}"
        assert shelf.put(_wheel(folder / name, content), place, {"from": "tests"}).read_text() == content


def test_processes_that_put_the_same_wheel_do_not_harm_each_other(tmp_path: Path) -> None:
    place = tmp_path / "5e1f"
    context = multiprocessing.get_context("fork")
    builders = [context.Process(target=_put_many, args=(name, tmp_path, place)) for name in ("a", "b")]
    for builder in builders:
        builder.start()
    while any(builder.is_alive() for builder in builders):
        shelf.found(place)
    assert [builder.exitcode for builder in builders] == [0, 0]
    assert shelf.found(place)
    assert not list(place.glob(".partial-*"))


def test_logs_of_two_builds_are_two_files_and_room_is_looked_at(
    settings: config.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.cache_dir.mkdir()
    assert build._new_log(settings, "key") != build._new_log(settings, "key")
    monkeypatch.setattr(requirements, "TEMPORARY_BYTES", 1 << 60)
    with pytest.raises(UserError, match="MiB free; building Horovod needs"):
        requirements.temporary_folder()
