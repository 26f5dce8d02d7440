"""PACELINE_NETWORK_FILE: auto takes the collectives measured fastest; unsuitable files are refused by name."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path

import msgspec
import numpy as np
import torch

from integration_tests.support.networks import network
from integration_tests.support.ranks import run_ranks
from paceline.collectives import network_file
from paceline.errors import UserError

ENV = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
SMALL, MIDDLE, LARGE = 64, 4096, 1 << 18
# Doubling is best for SMALL, Horovod's for MIDDLE, direct for LARGE, by a factor, so that no other is tried.
ALLREDUCES = {
    ("allreduce", name, size): seconds
    for name, times in {
        "horovod": (8e-3, 1e-3, 9e-1),
        "linear": (7e-3, 2e-2, 9e-1),
        "ring": (7e-3, 2e-2, 9e-1),
        "direct": (7e-3, 2e-2, 2e-2),
        "doubling": (1e-3, 8e-3, 9e-1),
    }.items()
    for size, seconds in zip((SMALL, MIDDLE, LARGE), times, strict=True)
}
BROADCASTS = {
    ("broadcast", name, size): seconds
    for name, times in {"horovod": (1e-3, 9e-2), "linear": (2e-3, 3e-2)}.items()
    for size, seconds in zip((SMALL, LARGE), times, strict=True)
}
SAID = (
    "Paceline: Collectives: allreduces below 4 KiB doubling, below 16 KiB horovod, above direct; "
    "broadcasts below 8 KiB horovod, above linear (auto, from "
)


def _init(path: str | None) -> tuple[str, str]:
    """Output of init() and its error."""
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

    os.environ["HOROVOD_TIMELINE"] = f"{folder}/timeline.json"  # the first rank writes it
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
    hvd.barrier()  # ranks outside the pair must not end it
    hvd.shutdown()
    os.environ.pop("HOROVOD_TIMELINE", None)  # the world is reused
    return said, seen


def _activities(path: Path) -> dict[str, set[str]]:
    """Activities of each tensor in Horovod's timeline."""
    events = json.loads(path.read_text().rstrip().rstrip(",").rstrip("]") + "]")
    tensors = [one for one in events if one.get("name") == "process_name" and "name" in one["args"]]
    names = {one["pid"]: one["args"]["name"] for one in tensors}
    activities: dict[str, set[str]] = {}
    for one in events:
        if one.get("ph") == "B":
            activities.setdefault(names[one["pid"]], set()).add(one["name"])
    return activities


def test_auto_takes_what_was_measured_to_be_the_fastest(tmp_path: Path) -> None:
    network_file.write(network(["a"] * 3, ALLREDUCES | BROADCASTS), tmp_path / "network.json")
    answers = run_ranks(_body, 3, str(tmp_path), env=ENV)
    assert answers[0][0] == f"{SAID}{tmp_path}/network.json)\n"
    assert [said for said, _ in answers[1:]] == ["", ""]
    assert answers[0][1] == answers[1][1] == answers[2][1]
    seen = _activities(tmp_path / "timeline.json")
    ours = {name: any(one.startswith("PACELINE_") for one in of_one) for name, of_one in seen.items()}
    expected = {f"allreduce.a{size // 4}": size != MIDDLE for size in (SMALL, MIDDLE, LARGE)}
    expected |= {f"broadcast.b{size // 4}": size == LARGE for size in (SMALL, MIDDLE, LARGE)}
    assert {name: ours[name] for name in expected} == expected, seen


def _encoded(hosts: list[str], factor: float = 1.0) -> bytes:
    return msgspec.json.encode(network(hosts, {case: factor * seconds for case, seconds in ALLREDUCES.items()}))


FINE = _encoded(["a"] * 3)
# Contents of the files of the three ranks (None: no file), and True for an elastic job.
Case = tuple[tuple[bytes | None, ...], bool]
CASES: dict[str, Case] = {
    "elastic": ((_encoded(["a"] * 2),) * 3, True),  # the first: later ones would ask the launcher for places
    "differing": ((FINE, FINE, _encoded(["a"] * 3, 2.0)), False),
    "broken": ((FINE, b"{", None), False),
    "fewer": ((_encoded(["a"] * 2),) * 3, False),
    "elsewhere": ((_encoded(["a", "b", "a"]),) * 3, False),
    "fine": ((FINE,) * 3, False),
}


def _in_turn(rank: int, _size: int, folder: str) -> dict[str, tuple[str, str]]:
    """Output and error of init() in each case; a failed world does not affect the next."""
    import horovod.torch as hvd

    seen = {}
    for name, (_, elastic) in CASES.items():
        os.environ["HOROVOD_ELASTIC"] = "1" if elastic else "0"
        seen[name] = _init(f"{folder}/{name}{rank}.json")
        hvd.shutdown()
    return seen


def test_files_that_cannot_be_used_are_refused_by_name(tmp_path: Path) -> None:
    for name, (contents, _) in CASES.items():
        for rank, content in enumerate(contents):
            if isinstance(content, bytes):
                (tmp_path / f"{name}{rank}.json").write_bytes(content)
    seen = run_ranks(_in_turn, 3, str(tmp_path), env=ENV, fresh=True)

    def raised(name: str) -> list[str]:
        return [of_rank[name][1] for of_rank in seen]

    for rank, text in enumerate(raised("differing")):
        assert f"Rank {rank}: expected one network file on all ranks" in text
        assert "rank 0 has a network file of its own contents, rank 2 has one with other contents." in text
        assert "Give all ranks the same PACELINE_NETWORK_FILE" in text
    fine, broken, missing = raised("broken")
    assert "rank 1 has one that cannot be used, rank 2 has one that cannot be used" in fine
    assert f"The network file {tmp_path}/broken1.json cannot be used" in broken and "paceline probe" in broken
    assert f"The network file {tmp_path}/broken2.json cannot be read: No such file" in missing
    for text in raised("fewer"):
        assert "was measured elsewhere: among 2 ranks on 1 hosts, and this job has 3 ranks." in text
        assert "Run `paceline probe` with the flags" in text
    for text, number, then in zip(raised("elsewhere"), range(3), ("0 of 2", "0 of 1", "1 of 2"), strict=True):
        assert f"rank {number} was number {then} ranks on its host, and is number {number} of 3 now." in text
    assert raised("elastic") == raised("fine") == [""] * 3
    assert "this job has 3 ranks. The ranks of an elastic job change" in seen[0]["elastic"][0]
    assert seen[0]["fine"][0].startswith("Paceline: Collectives: allreduces below 4 KiB doubling")


def _alone(rank: int, size: int, path: str) -> None:
    """Only one rank reads a file: no collective changes."""
    import horovod.torch as hvd

    from paceline.collectives import probed
    from paceline.native.library import loaded

    assert _init(None) == ("", "")
    if rank == 1:
        probed._hand_over(loaded("torch"), network_file.load(Path(path)), Path(path))
    for turn in range(3):
        for length in (SMALL // 4, MIDDLE // 4, LARGE // 4):
            found = hvd.allreduce(torch.full((length,), rank + 1.0), op=hvd.Sum, name=f"alone.{length}")
            assert (found == size * (size + 1) / 2).all(), (turn, length)
    hvd.shutdown()


def test_a_network_that_one_rank_alone_has_read_changes_nothing(tmp_path: Path) -> None:
    network_file.write(network(["a"] * 3, ALLREDUCES | BROADCASTS), tmp_path / "network.json")
    run_ranks(_alone, 3, str(tmp_path / "network.json"), env=ENV, fresh=True)
