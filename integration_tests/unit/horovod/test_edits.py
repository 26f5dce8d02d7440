"""Edits of Horovod's source: an anchor that does not match exactly once stops the build with what and where."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paceline import config
from paceline.errors import UserError
from paceline.horovod import archive, edits, tree
from paceline.horovod.edits import Edit
from paceline.horovod.hooks import HOOKS
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
    """A copy of what is edited: the published source without what it brings of others but Gloo."""

    def ignore(folder: str, names: list[str]) -> set[str]:
        return set(names) - {"gloo"} if Path(folder).name == "third_party" else set()

    return shutil.copytree(pristine, tmp_path / "source", ignore=ignore)


# How often each hook is called, by file.
CALLS = {
    "common/controller.cc": "Popped OverrideReady ExtraReadyNames OwnsReadiness Fuse Cacheable GatherRequests "
    "SendResponses SendRequests ReceiveResponses",
    "common/operations.cc": "Enqueue BeforeExecute BufferBytes AfterExecute Cycle Sleep End",
    "common/response_cache.cc": "CombineBits CombineBits",
    "common/process_set.cc": "GatherInts",
    "common/tensor_queue.cc": "Queued Queued Queued",
    "torch/mpi_ops_v2.cc": "TellWaitedFor",
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


def test_leaving_out_what_does_not_exist_names_the_nearest() -> None:
    with pytest.raises(UserError, match="stall-inspector"):
        tree.all_edits(["stall-inspecter"])


def test_hooks_only_insert_and_nothing_of_horovods_source_is_kept_but_anchors() -> None:
    hooks = [edit for hook in HOOKS.values() for edit in hook]
    assert all(edit.where in ("before", "after") for edit in hooks)
    rows = hooks + [edit for patch in PATCHES for edit in patch.edits]
    assert all("\n" not in edit.anchor and "\n" not in (edit.within or "") for edit in rows)


def test_a_source_that_was_changed_stops_the_build(source: Path) -> None:
    controller = source / "horovod/common/controller.cc"
    controller.write_text(controller.read_text().replace("PopMessagesFromQueue(message_queue_tmp)", "Pop(m)"))
    with pytest.raises(UserError, match=r"controller\.cc.*PopMessagesFromQueue.*0 times"):
        tree.prepare(source)


def test_the_page_about_horovod_names_every_hook_and_patch() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "horovod.md").read_text()
    for name in [*HOOKS, *(patch.name for patch in PATCHES)]:
        assert name == "include" or f"| {name} |" in page, name
