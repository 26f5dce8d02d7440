"""PACELINE_NETWORK_FILE: auto takes what was measured to be the fastest; files that do not fit are refused by name."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from integration_tests.support.networks import network
from integration_tests.support.ranks import run_ranks
from paceline.collectives import network_file
from paceline.errors import UserError

SMALL, MIDDLE, LARGE = 64, 4096, 1 << 18
# Doubling is best for SMALL, stock Horovod's for MIDDLE, direct for LARGE; by a factor, so that no other is tried.
ALLREDUCES = {
    ("allreduce", name, size): seconds
    for name, times in {
        "gloo": (8e-3, 1e-3, 9e-1),
        "linear": (7e-3, 2e-2, 9e-1),
        "ring": (7e-3, 2e-2, 9e-1),
        "direct": (7e-3, 2e-2, 2e-2),
        "doubling": (1e-3, 8e-3, 9e-1),
    }.items()
    for size, seconds in zip((SMALL, MIDDLE, LARGE), times, strict=True)
}
BROADCASTS = {
    ("broadcast", name, size): seconds
    for name, times in {"gloo": (1e-3, 9e-2), "linear": (2e-3, 3e-2)}.items()
    for size, seconds in zip((SMALL, LARGE), times, strict=True)
}
SAID = (
    "Paceline: Collectives: allreduces below 256 bytes doubling, below 8 KiB gloo, above direct; "
    "broadcasts below 32 KiB gloo, above linear (auto, from "
)


def _init(path: str | None) -> tuple[str, str]:
    """What init() said and what it raised."""
    import horovod.torch as hvd

    import paceline.torch  # noqa: F401  hands the option on

    os.environ["PACELINE_COLLECTIVE"] = "auto"
    os.environ.pop("PACELINE_NETWORK_FILE", None)
    if path is not None:
        os.environ["PACELINE_NETWORK_FILE"] = path
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            hvd.init()
        except UserError as error:
            return said.getvalue(), str(error)
    return said.getvalue(), ""


def _body(rank: int, size: int, folder: str) -> tuple[str, list[bytes]]:
    import horovod.torch as hvd

    if rank == 0:
        os.environ["HOROVOD_TIMELINE"] = f"{folder}/timeline.json"
    said, raised = _init(f"{folder}/network.json")
    assert not raised
    rng = np.random.default_rng(3)
    seen = []
    for turn in range(5):
        for length in (SMALL // 4, MIDDLE // 4, LARGE // 4):
            many = [rng.integers(-9, 9, length).astype("float32") for _ in range(size)]
            found = hvd.allreduce(torch.from_numpy(many[rank]), op=hvd.Sum, name=f"a{length}").numpy()
            np.testing.assert_array_equal(found, np.sum(many, 0), err_msg=f"turn {turn}, rank {rank}")
            root = turn % size
            found = hvd.broadcast(torch.from_numpy(many[rank]), root, name=f"b{length}").numpy()
            np.testing.assert_array_equal(found, many[root], err_msg=f"turn {turn}, rank {rank}")
            seen.append(found.tobytes())
    # Fewer ranks than were measured: their set measures for itself.
    pair = hvd.add_process_set([0, size - 1])
    if rank in (0, size - 1):
        found = hvd.allreduce(torch.full((7,), float(rank)), op=hvd.Sum, name="pair", process_set=pair)
        assert (found == size - 1).all()
    hvd.shutdown()
    return said, seen


def _activities(path: Path) -> dict[str, set[str]]:
    """What Horovod's timeline tells of each tensor."""
    events = json.loads(path.read_text().rstrip().rstrip(",").rstrip("]") + "]")
    names = {one["pid"]: one["args"]["name"] for one in events if one.get("name") == "process_name"}
    activities: dict[str, set[str]] = {}
    for one in events:
        if one.get("ph") == "B":
            activities.setdefault(names[one["pid"]], set()).add(one["name"])
    return activities


def test_auto_takes_what_was_measured_to_be_the_fastest(tmp_path: Path) -> None:
    network_file.write(network(["a"] * 3, ALLREDUCES | BROADCASTS), tmp_path / "network.json")
    env = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
    answers = run_ranks(_body, 3, str(tmp_path), env=env, timeout_s=100, fresh=True)
    assert answers[0][0] == f"{SAID}{tmp_path}/network.json)\n"
    assert [said for said, _ in answers[1:]] == ["", ""]
    assert answers[0][1] == answers[1][1] == answers[2][1]
    seen = _activities(tmp_path / "timeline.json")
    ours = {name: any(one.startswith("PACELINE_") for one in of_one) for name, of_one in seen.items()}
    expected = {f"allreduce.a{size // 4}": size != MIDDLE for size in (SMALL, MIDDLE, LARGE)}
    expected |= {f"broadcast.b{size // 4}": size == LARGE for size in (SMALL, MIDDLE, LARGE)}
    assert {name: ours[name] for name in expected} == expected, seen


def _two(rank: int, _size: int, paths: list[str | None]) -> str:
    return _init(paths[rank])[1]


def _refused(tmp_path: Path, contents: list[bytes | None]) -> list[str]:
    """What each rank is told whose file has these bytes; None: it is not there."""
    paths: list[str | None] = []
    for rank, content in enumerate(contents):
        path = tmp_path / f"rank{rank}.json"
        if content is not None:
            path.write_bytes(content)
        paths.append(str(path))
    return run_ranks(_two, len(contents), paths, timeout_s=60, fresh=True)


def _encoded(hosts: list[str], factor: float = 1.0) -> bytes:
    return msgspec.json.encode(network(hosts, {case: factor * seconds for case, seconds in ALLREDUCES.items()}))


def test_files_that_differ_are_refused_with_the_ranks(tmp_path: Path) -> None:
    fine = _encoded(["a"] * 3)
    for rank, text in enumerate(_refused(tmp_path, [fine, fine, _encoded(["a"] * 3, 2.0)])):
        assert f"Rank {rank}: expected one network file on all ranks" in text
        assert "rank 0 has a network file of its own contents, rank 2 has one with other contents" in text
        assert "rank 1" not in text.replace("Rank 1", "") and "Give all ranks the same PACELINE_NETWORK_FILE" in text


def test_missing_and_broken_files_are_told_where_they_are(tmp_path: Path) -> None:
    fine, broken, missing = _refused(tmp_path, [_encoded(["a"] * 3), b"{", None])
    assert "rank 1 has one that cannot be used, rank 2 has one that cannot be used" in fine
    assert f"The network file {tmp_path}/rank1.json cannot be used" in broken and "paceline probe" in broken
    assert f"The network file {tmp_path}/rank2.json cannot be read: No such file" in missing


def test_a_rank_without_a_file_is_named() -> None:
    first, second = run_ranks(_two, 2, ["/nowhere/network.json", None], timeout_s=60, fresh=True)
    assert "The network file /nowhere/network.json cannot be read" in first
    assert "rank 0 has one that cannot be used, rank 1 has no network file" in second


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (["a"] * 3, "was measured elsewhere: among 3 ranks on 1 hosts, and this job has 2 ranks."),
        (
            ["a", "b"],
            "was measured elsewhere: rank {rank} was number 0 of 1 ranks on its host, and is number {rank} of 2",
        ),
    ],
)
def test_a_file_of_other_ranks_or_hosts_is_refused(tmp_path: Path, hosts: list[str], said: str) -> None:
    for rank, text in enumerate(_refused(tmp_path, [_encoded(hosts)] * 2)):
        assert said.format(rank=rank) in text and "Run `paceline probe` with the flags" in text


def _elastic(_rank: int, _size: int, path: str) -> tuple[str, str]:
    os.environ["HOROVOD_ELASTIC"] = "1"
    return _init(path)


def test_elastic_jobs_go_on_without_a_file_that_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "network.json").write_bytes(_encoded(["a"] * 3))
    (said, raised), (nothing, also) = run_ranks(_elastic, 2, str(tmp_path / "network.json"), timeout_s=60, fresh=True)
    assert (raised, nothing, also) == ("", "", "")
    assert "among 3 ranks on 1 hosts, and this job has 2 ranks. The ranks of an elastic job change" in said
