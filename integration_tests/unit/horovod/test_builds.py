"""Edits of Horovod's source; CUDA, NCCL and MPI that are found; builds that fail, with the cause and a remedy."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import first_of, more
from integration_tests.support.mpi import needs_open_mpi
from paceline import config
from paceline.errors import UserError
from paceline.horovod import archive, build, edits, failures, gpu, key, requirements, tree
from paceline.horovod.edits import Edit
from paceline.horovod.environment import environment
from paceline.horovod.hooks import HOOKS
from paceline.horovod.key import BUILD_VARIABLES
from paceline.horovod.patches.table import PATCHES

SOURCE = """\
int first() {
  int x = 1;
  return x;
}
int second() {
  if (true) {
    return x;
  }
}
"""


def test_edits_replace_and_insert_with_the_anchors_indentation() -> None:
    edit = Edit("a.cc", "return x;", "before", "call(\n  x);", within="int second() {")
    assert edits.apply(SOURCE, edit) == SOURCE.replace("    return x;\n", "    call(\n      x);\n    return x;\n")
    assert "int y = 2;\n  return" in edits.apply(SOURCE, Edit("a.cc", "int x = 1;", "replace", "int y = 2;"))
    assert "int x = 1;\n  x++;\n" in edits.apply(SOURCE, Edit("a.cc", "int x = 1;", "after", "x++;"))


@pytest.mark.parametrize(
    ("edit", "times"),
    [
        (Edit("a.cc", "return x;", "before", "x"), 2),
        (Edit("a.cc", "return y;", "before", "x"), 0),
        (Edit("a.cc", "int x = 1;", "before", "x", within="int second() {"), 0),
        (Edit("a.cc", "int x = 1;", "before", "x", within="int third() {"), 0),
    ],
)
def test_an_anchor_that_does_not_match_once_is_an_error_that_names_it(edit: Edit, times: int) -> None:
    with pytest.raises(UserError) as error:
        edits.apply(SOURCE, edit)
    assert "a.cc" in error.value.problem
    assert f"{times} times" in error.value.problem
    assert "paceline horovod clean" in error.value.remedy


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive.unpack(archive.fetch(config.read().cache_dir), tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def source(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the sources to edit: the published source, of whose third-party sources only Gloo."""

    def ignore(folder: str, names: list[str]) -> set[str]:
        return set(names) - {"gloo"} if Path(folder).name == "third_party" else set()

    return shutil.copytree(pristine, tmp_path / "source", ignore=ignore)


# Number of calls of each hook, by file.
CALLS = {
    "common/controller.cc": "Popped OverrideReady ExtraReadyNames OwnsReadiness Fuse Cacheable GatherRequests "
    "SendResponses SendRequests ReceiveResponses",
    "common/operations.cc": "Enqueue BeforeExecute BufferBytes AfterExecute Cycle Sleep End",
    "common/response_cache.cc": "CombineBits CombineBits",
    "common/process_set.cc": "GatherInts",
    "common/tensor_queue.cc": "Queued Queued Queued",
    "torch/mpi_ops_v2.cc": "NotifyWaitedFor",
}


def test_all_edits_fit_the_published_source(source: Path) -> None:
    tree.prepare(source)
    for file, calls in CALLS.items():
        text = (source / "horovod" / file).read_text()
        for call in calls.split():
            assert text.count(f"::horovod::paceline::{call}(") == calls.split().count(call), call
    assert (source / "paceline/bridge/hooks.cc").exists()
    assert (source / "horovod/_paceline/__init__.py").exists()
    assert "distutils" not in (source / "horovod/torch/CMakeLists.txt").read_text()
    # A change of Python alone needs no other build.
    assert [name for name in tree.our_sources() if name.endswith(".py")] == ["horovod/_paceline/__init__.py"]


@pytest.mark.parametrize("name", tree.LEAVABLE)
def test_each_patch_and_the_hooks_can_be_left_out(source: Path, name: str) -> None:
    tree.prepare(source, leave_out=[name])


def test_hooks_and_patches_are_edits_of_single_lines_and_stand_on_the_page() -> None:
    with pytest.raises(UserError, match="stall-inspector"):
        tree.all_edits(["stall-inspecter"])
    # Hooks only insert and nothing of horovods source is kept but anchors.
    hooks = [edit for hook in HOOKS.values() for edit in hook]
    assert all(edit.where in ("before", "after") for edit in hooks)
    rows = hooks + [edit for patch in PATCHES for edit in patch.edits]
    assert all("\n" not in edit.anchor and "\n" not in (edit.within or "") for edit in rows)
    # The page about horovod names every hook and patch.
    page = (Path(__file__).resolve().parents[3] / "docs" / "developers" / "horovod.md").read_text()
    for name in [*HOOKS, *(patch.name for patch in PATCHES)]:
        assert name == "include" or f"| {name} |" in page, name


def test_a_source_that_was_changed_stops_the_build(source: Path) -> None:
    controller = source / "horovod/common/controller.cc"
    controller.write_text(controller.read_text().replace("PopMessagesFromQueue(message_queue_tmp)", "Pop(m)"))
    with pytest.raises(UserError, match=r"controller\.cc.*PopMessagesFromQueue.*0 times"):
        tree.prepare(source)


CONFIGURE_TIMEOUT_S = 900
CUDA = "13.0"


@pytest.fixture(autouse=True)
def nothing_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*BUILD_VARIABLES, "CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT", "CUDACXX", "NCCL_ROOT"):
        monkeypatch.delenv(name, raising=False)


def _nvcc(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\n{script}\n")
    nvcc.chmod(0o755)
    return nvcc


@pytest.fixture
def stray_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc that is first on PATH and not part of a toolkit."""
    nvcc = _nvcc(tmp_path / "stray" / "bin", "exit 1")
    monkeypatch.setenv("PATH", f"{nvcc.parent}{os.pathsep}{os.environ['PATH']}")
    return nvcc


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a CUDA toolkit that CMake searches, in the folder HOROVOD_CUDA_HOME."""
    home = tmp_path / "cuda"
    _nvcc(home / "bin", f"echo 'Cuda compilation tools, release {CUDA}, V{CUDA}.48'; echo '#$ TOP={home}' >&2")
    for name in ("include/cuda_runtime.h", "lib64/libcudart.so", "lib64/libcudart_static.a"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).touch()
    (home / "include/cuda.h").write_text("#define CUDA_VERSION 13000\n")
    monkeypatch.setenv("HOROVOD_CUDA_HOME", str(home))
    monkeypatch.setenv("HOROVOD_WITHOUT_PYTORCH", "1")
    return home


def _nccl(folder: Path, patch: int) -> None:
    for name in ("include", "lib"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = [f"#define NCCL_{part} {value}\n" for part, value in (("MAJOR", 2), ("MINOR", 28), ("PATCH", patch))]
    (folder / "include/nccl.h").write_text("".join(lines))
    (folder / "lib/libnccl.so").touch()


def test_nothing_is_looked_for_unless_asked(stray_nvcc: Path) -> None:
    assert build.wanted()["found"] == {}
    assert not gpu.asked_for({"HOROVOD_GPU_OPERATIONS": "", "HOROVOD_CUDA_HOME": "/usr/local/cuda"})


def test_what_is_no_toolkit_is_refused(stray_nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    with pytest.raises(UserError) as error:
        build.wanted()
    assert error.value.problem == (
        "HOROVOD_GPU_OPERATIONS=NCCL needs a whole CUDA toolkit, and CMake finds none: "
        f"{stray_nvcc} is not part of one."
    )
    assert "HOROVOD_CUDA_HOME" in error.value.remedy and "unset HOROVOD_GPU_OPERATIONS" in error.value.remedy
    monkeypatch.setenv("HOROVOD_CUDA_HOME", str(tmp_path))
    with pytest.raises(UserError, match="HOROVOD_GPU_OPERATIONS=NCCL needs a whole CUDA toolkit"):
        build.wanted()
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "nccl")
    with pytest.raises(UserError, match="HOROVOD_GPU_OPERATIONS=nccl is not a library") as error:
        build.wanted()
    assert error.value.remedy == "Choose one of NCCL, MPI."


def test_key_has_the_toolkit_and_nccl(toolkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "NCCL")
    monkeypatch.setenv("HOROVOD_NCCL_HOME", str(tmp_path / "nccl"))
    with pytest.raises(UserError, match=r"needs nccl\.h and libnccl") as error:
        build.wanted()
    assert "libnccl-dev" in error.value.remedy
    keys = []
    for patch in (3, 9):
        _nccl(tmp_path / "nccl", patch)
        inputs = build.wanted()
        found = inputs["found"]
        assert found["CUDA_HOME"] == str(toolkit) and found["CUDA"].startswith(CUDA)
        assert found["NCCL"] == f"2.28.{patch} ({tmp_path}/nccl/lib/libnccl.so)"
        keys.append(key.key(inputs))
    assert keys[0] != keys[1]


def test_pytorch_without_cuda_is_said_before_the_build(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if gpu.of_framework("torch"):
        monkeypatch.setattr(gpu, "of_framework", lambda name: "")
    monkeypatch.setenv("HOROVOD_GPU_OPERATIONS", "MPI")
    monkeypatch.delenv("HOROVOD_WITHOUT_PYTORCH")
    with pytest.raises(UserError, match="needs a PyTorch that is built with CUDA"):
        build.wanted()


@needs_open_mpi
def test_key_has_the_mpi_that_was_found() -> None:
    assert "libmpi" in build.wanted(mpi=True)["found"]["MPI"]


def torch_with_cuda(folder: Path) -> None:
    """Link the installed PyTorch into `folder`, as one that reports to be a CUDA build."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    real = Path(spec.origin).parent
    changed = {"version.py", "utils/cpp_extension.py"}
    for part in ("", "utils"):
        (folder / "torch" / part).mkdir(parents=True)
        for path in (real / part).iterdir():
            name = str(path.relative_to(real))
            if name not in {*changed, "utils"} and path.name != "__pycache__":
                (folder / "torch" / name).symlink_to(path)
    for name, pattern, line in (
        ("version.py", r"^cuda\b.*$", f"cuda = '{CUDA}'"),
        ("utils/cpp_extension.py", r"^CUDA_HOME = .*$", "CUDA_HOME = _find_cuda_home()"),
    ):
        text, count = re.subn(pattern, line, (real / name).read_text(), flags=re.MULTILINE)
        assert count == 1
        (folder / "torch" / name).write_text(text)


@pytest.mark.timeout(CONFIGURE_TIMEOUT_S)
@pytest.mark.parametrize("with_torch", [False, more(True)], ids=["Gloo alone", "CUDA build of PyTorch"])
def test_stray_nvcc_does_not_keep_cmake_from_its_work(
    with_torch: bool, stray_nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Horovod's CMakeLists.txt enables CUDA, and torch/CMakeLists.txt requires its toolkit, for any nvcc on PATH."""
    source = archive.unpack(archive.fetch(config.read().cache_dir), tmp_path)
    tree.prepare(source)
    monkeypatch.setenv("HOROVOD_WITHOUT_TENSORFLOW", "1")
    if not with_torch:
        monkeypatch.setenv("HOROVOD_WITHOUT_PYTORCH", "1")
    env = environment(tmp_path, False, {"torch": ""} if with_torch else {}, {})
    if with_torch:
        torch_with_cuda(tmp_path / "site")
        env |= {"PYTHONPATH": str(tmp_path / "site")}
        ask = [sys.executable, "-c", "from torch.utils.cpp_extension import CUDA_HOME; print(CUDA_HOME)"]
        answer = subprocess.run(ask, env=env, capture_output=True, text=True, timeout=CONFIGURE_TIMEOUT_S)
        assert answer.stdout.strip() == str(stray_nvcc.parents[1]), answer.stderr
    options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DPYTHON_EXECUTABLE:FILEPATH={sys.executable}"]
    command = [env["HOROVOD_CMAKE"], "-S", str(source), "-B", str(tmp_path / "build"), *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=CONFIGURE_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert ("Found Pytorch" in done.stdout) == with_torch
    assert "CUDA" not in done.stdout


BUILD_TIMEOUT_S = 600
# Each fails while CMake inspects the machine, or with the first compiled file.
FAST = {"HOROVOD_WITHOUT_PYTORCH": "1", "HOROVOD_WITHOUT_TENSORFLOW": "1", "CCACHE_DISABLE": "1"}
_FOR_GLOO = 'case "$*" in *gloo/*.cc*) {} ;; esac\nexec c++ "$@"\n'
_INCLUDE = 'echo "#include <nccl.h>" | c++ -x c++ -c - -o /dev/null; exit 1'
# Cause: required text of the problem and the remedy, and lines of a shell script that replaces CXX.
ROWS: dict[str, tuple[str, str, str]] = {
    "CMake's error": (r"CMake Error at CMakeLists.txt:\d+ \(message\):\n  MPI is not installed, try changing", "", ""),
    "a broken compiler": (r"CMake Error.*\n(.*\n)*.*broken on purpose", "", "echo broken on purpose >&2; exit 1\n"),
    "a missing header": (r"fatal error: nccl\.h: No such file", "libnccl-dev", _FOR_GLOO.format(_INCLUDE)),
    "a compiler without memory": (
        "memory|Killed",
        "CMAKE_BUILD_PARALLEL_LEVEL=1",
        _FOR_GLOO.format('ulimit -v 60000; exec c++ "$@"'),
    ),
    "no room": ("No space left on device", "TMPDIR", _FOR_GLOO.format("echo > /dev/full; exit 1")),
}


@pytest.mark.timeout(BUILD_TIMEOUT_S)
@pytest.mark.parametrize("cause", first_of(ROWS, "CMake's error"))
def test_failed_build_shows_its_cause(
    cause: str, with_archive: config.Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, remedy, compiler = ROWS[cause]
    for name in BUILD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in FAST.items():
        monkeypatch.setenv(name, value)
    if not compiler:
        monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "MPI")
    else:
        script = tmp_path / "broken-c++"
        script.write_text(f"#!/bin/bash\n{compiler}")
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))
    with pytest.raises(UserError) as error:
        build.build(with_archive)
    assert re.search(problem, error.value.problem), error.value.problem
    assert remedy in error.value.remedy, error.value
    assert len(error.value.problem.splitlines()) <= failures.SHOWN_LINES + 1
    log = re.search(r"The whole log is in (\S+\.log)", error.value.remedy)
    assert log and len(Path(log[1]).read_text().splitlines()) > failures.SHOWN_LINES
    # A line that only reports a failure is not shown instead of the cause.
    assert "CalledProcessError" not in error.value.problem
    assert not list((with_archive.cache_dir / "wheels").glob("*"))


def test_no_room_while_files_are_written() -> None:
    with pytest.raises(UserError, match="No space left on device") as error, requirements.disk_full("/somewhere"):
        with Path("/dev/full").open("w") as full:
            full.write("a" * (1 << 20))
    assert "TMPDIR" in error.value.remedy
    with pytest.raises(FileNotFoundError) as other, requirements.disk_full("/somewhere"):
        Path("/no/such/file").read_text()
    assert other.value.errno == errno.ENOENT
