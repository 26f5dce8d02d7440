"""Ranks of a recorded run that fails leave their last operations, and PyTorch's analyzer finds who lacks which."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path

from integration_tests.kills import kill_in
from integration_tests.support.processes import finished
from integration_tests.support.ranks import World
from paceline.record import flight_recorder

SIZE = 3
STEPS = 14  # more than are kept


def analysed(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    module = "torch.distributed.flight_recorder.fr_trace"
    return finished(sys.executable, "-m", module, str(folder), *flags, timeout_s=120)


def dumped(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _leave_one_out(rank: int, size: int) -> str:
    """Rank 1 lacks a gradient of the last step; ranks submit in different orders."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.broadcast(torch.ones(3), 0, name="weights")
    order = [0, 1, 2, 3]
    said = ""
    try:
        for step in range(STEPS):
            mine = order[rank:] + order[:rank]
            if rank == 1 and step == STEPS - 1:
                mine.remove(2)
            handles = [hvd.allreduce_async(torch.ones(number + 1), name=f"gradient.{number}") for number in mine]
            for handle in handles:
                hvd.synchronize(handle)
            hvd.allgather(torch.ones(rank + 1, 2), name="rows")
            hvd.barrier()
    except hvd.HorovodInternalError as error:
        said = str(error)
    hvd.shutdown()
    return said


def test_analyzer_names_the_collective_and_the_rank_that_left_it_out(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    # Ranks 0 and 2 wait for the gradient, rank 1 for their rows; then the coordinator gives up.
    env = {
        "PACELINE_RECORD": str(trace),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2",
    }
    world = World(SIZE, env, ("torch",))
    try:
        said = world.run(_leave_one_out.__module__, _leave_one_out.__qualname__, (), 120, grace_s=60)
    finally:
        world.end()
    assert all(said), said
    folder = flight_recorder.folder(trace)
    assert dumped(folder) == ["rank_0", "rank_1", "rank_2"]
    done = analysed(folder)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    # Two collectives lack ranks, and no other one is named.
    assert text.count("Not all ranks joining collective") == 2, text
    for name, collective, missing in (
        ("allreduce.gradient.2", "all_reduce", {1}),
        ("allgather.rows", "all_gather_v", {0, 2}),
    ):
        lines = ("group info: {}:process set 0", "collective: gloo:{}", "missing ranks: {}")
        assert "\n".join(lines).format(name, collective, missing) in text, text
    assert text.count(f"sequence number: {STEPS}\n") == 2, text


def _train(rank: int, size: int, folder: str) -> tuple[float, str]:
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.allreduce(torch.ones(3), name="first")
    (Path(folder) / str(rank)).touch()
    try:
        while True:
            hvd.allreduce(torch.ones(300_001), name="gradient")
    except hvd.HorovodInternalError as error:
        return time.monotonic(), str(error)
    finally:
        hvd.shutdown()


def test_survivors_of_a_killed_rank_leave_their_last_operations(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    heard = kill_in(_train, (), 1, 0.2, SIZE, {"PACELINE_RECORD": str(trace)})
    assert all(one.named(1) for one in heard), heard
    folder = flight_recorder.folder(trace)
    assert dumped(folder) == ["rank_0", "rank_2"]
    assert "Missing dump files from ranks {1}" in analysed(folder).stderr
    done = analysed(folder, "--allow-incomplete-ranks")
    assert done.returncode == 0, done.stderr
    assert "we missed FR dumps from ranks ({1})" in done.stdout + done.stderr
    last = [pickle.loads((folder / name).read_bytes())["entries"][-1] for name in dumped(folder)]
    assert {one["process_group"][0] for one in last} == {"allreduce.gradient"}
    assert {one["state"] for one in last} != {"completed"}
