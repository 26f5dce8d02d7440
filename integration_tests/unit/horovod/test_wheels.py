"""Wheels of Horovod: archives, tools and folders that a build needs, the cache, and wheels of another machine."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from integration_tests.support.mounts import run_mounted
from paceline import config
from paceline.errors import UserError
from paceline.horovod import archive, build, carried, check, install, key, requirements, shelf
from paceline.horovod.environment import environment
from paceline.horovod.load import HorovodMissing, load
from paceline.horovod.release import ARCHIVE_NAME, BUILT_VERSION, HOROVOD_VERSION
from paceline.launch import cli


def test_an_archive_that_is_corrupted_cannot_be_had_or_has_another_hash_runs_nothing(
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
    # A corrupted archive is refused.
    settings.cache_dir.mkdir(exist_ok=True)
    (settings.cache_dir / ARCHIVE_NAME).write_bytes(b"not what was published")
    with pytest.raises(UserError) as error:
        archive.fetch(settings.cache_dir)
    assert "sha256" in error.value.problem
    assert str(settings.cache_dir / ARCHIVE_NAME) in error.value.problem
    assert "Delete" in error.value.remedy


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
    # --force builds again: the changed wheel is replaced. Another build of the same inputs has other bytes.
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


def test_the_key_follows_everything_that_goes_in_and_variables_pass_through(
    monkeypatch: pytest.MonkeyPatch, settings: config.Settings, tmp_path: Path
) -> None:
    plain = key.key(build.wanted())
    assert key.key(build.wanted()) == plain
    assert key.key(build.wanted(leave_out=["hooks"])) != plain
    assert key.key(build.wanted(leave_out=["keras3"])) not in (plain, key.key(build.wanted(leave_out=["hooks"])))
    monkeypatch.setenv("HOROVOD_DEBUG", "1")
    assert key.key(build.wanted()) != plain
    # The users build variables pass through.
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "3")
    made = environment(tmp_path, False, {"torch": "2.13.0"}, {"CUDA_HOME": "/cuda"})
    assert made["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert made["HOROVOD_CUDA_HOME"] == made["CUDA_HOME"] == "/cuda"
    assert made["HOROVOD_WITH_PYTORCH"] == "1"
    assert made["HOROVOD_WITHOUT_TENSORFLOW"] == "1"
    assert made["MAKEFLAGS"] == "-j3"
    monkeypatch.setenv("CMAKE_BUILD_PARALLEL_LEVEL", "many")
    with pytest.raises(UserError, match=r"CMAKE_BUILD_PARALLEL_LEVEL='many'(.|\n)*number of compilers"):
        environment(tmp_path, False, {}, {})


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


def wheel(folder: Path, **changed: Any) -> Path:
    """A wheel that contains only the inputs of a build on this machine, with the changes in `changed`."""
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


def test_install_and_check_agree_about_a_foreign_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert all(row.ok and row.found.startswith(("none: ", "host staging (")) for row in rows.values())


def test_environment_without_pip_reports_what_to_install(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u; f = u.find_spec; u.find_spec = lambda n, *p: None if n == 'pip' else f(n, *p)\n"
        "from paceline.horovod import requirements; requirements.tools(False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert "has no pip, which building and installing Horovod needs" in done.stderr
    assert "uv pip install pip" in done.stderr


COMMAND = (Path(sys.executable).with_name("paceline"), "horovod", "build")
COMMAND_TIMEOUT_S = 240
PUTS = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mounted"
    made.mkdir()
    return made


def with_temporary_folder(folder: Path, options: str, command: Sequence[str | Path], **env: str) -> Any:
    """Run a command whose temporary folder is a file system with these options of mount."""
    mount = ["-t", "tmpfs", "-o", options, "none", str(folder)]
    return run_mounted(mount, command, {"TMPDIR": str(folder), **env}, COMMAND_TIMEOUT_S)


@pytest.mark.timeout(COMMAND_TIMEOUT_S)
@pytest.mark.parametrize(
    ("options", "problem", "remedy"),
    [
        ("size=8m", "has 8 MiB free; building Horovod needs ", "TMPDIR"),
        ("size=2g,noexec", "is mounted noexec", "TMPDIR="),
    ],
    ids=["no room", "noexec"],
)
def test_unfit_temporary_folder(options: str, problem: str, remedy: str, folder: Path, tmp_path: Path) -> None:
    done = with_temporary_folder(folder, options, [*COMMAND, "--cache-dir", tmp_path / "cache"])
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"Error: The temporary folder {folder} ") and problem in first
    assert remedy in second


@pytest.mark.timeout(COMMAND_TIMEOUT_S)
def test_program_that_may_not_run_is_named(folder: Path, with_archive: config.Settings) -> None:
    """As where a security module forbids programs in temporary folders: only the build is affected."""
    body = (
        "from paceline import config; from paceline.horovod import build, requirements\n"
        "requirements.temporary_folder = lambda: None\n"
        "build.build(config.read())"
    )
    cache = str(with_archive.cache_dir)
    done = with_temporary_folder(folder, "size=2g,noexec", [sys.executable, "-c", body], PACELINE_CACHE_DIR=cache)
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


def test_two_builds_have_two_logs_and_need_room(settings: config.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.cache_dir.mkdir()
    assert build._new_log(settings, "key") != build._new_log(settings, "key")
    monkeypatch.setattr(requirements, "TEMPORARY_BYTES", 1 << 60)
    with pytest.raises(UserError, match="MiB free; building Horovod needs"):
        requirements.temporary_folder()
