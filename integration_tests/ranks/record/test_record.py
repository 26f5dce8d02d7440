"""`paceline run` and `paceline record` under the real horovodrun, with a script without any call of Paceline."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration_tests.support.chrome_traces import tracks
from integration_tests.support.more import more
from integration_tests.support.processes import PACELINE, QUIET, finished, written
from paceline.fusion import from_trace
from paceline.record import flight_recorder, trace
from paceline.record import summary as trace_summary

SIZES = (7, 1000, 33)  # elements of the script's gradients
STEPS = 6

SCRIPT = f"""
import sys
import torch
import horovod.torch as hvd

hvd.init()
weights = {{f"w{{i}}": torch.nn.Parameter(torch.zeros(n)) for i, n in enumerate({SIZES})}}
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights.values(), lr=1.0), named_parameters=weights.items())
for step in range({STEPS}):
    optimizer.zero_grad()
    sum((w * (hvd.rank() + 1)).sum() for w in weights.values()).backward()
    optimizer.step()
if "vanish" in sys.argv and hvd.rank() == 1:
    import os, time
    while not os.path.exists("trace.json.rank0.json"):  # which is written before the shutdown that waits for this rank
        time.sleep(0.05)
    os._exit(9)
"""


def record(folder: Path, *words: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*PACELINE, "record", *flags, "-np", "2", sys.executable, str(written(folder, SCRIPT))]
    return finished(*command, *words, folder=folder, timeout_s=300)


def test_ranks_get_flags_as_variables_and_the_exit_code_passes_through(tmp_path: Path) -> None:
    printed = '"debug=$PACELINE_DEBUG cycle=$HOROVOD_CYCLE_TIME $1"'
    words = ["--debug", "record_steps=3,check_horovod=no", "-np", "1", "--cycle-time-ms", "7", "--codec", "q8"]
    command = [*PACELINE, "run", *words, "sh", "-c", f"echo {printed}; exit 3", "x", "--record"]
    done = finished(*command, folder=tmp_path, env={"PACELINE_DEBUG": "record_steps=9"})
    assert "[0]<stdout>:debug=record_steps=3,check_horovod=no cycle=7.0 --record" in done.stdout.splitlines()
    assert "codec=q8 (--codec), debug=record_steps=3,check_horovod=no (--debug)" in done.stderr
    assert done.returncode == 1, "horovodrun ends with 1 whatever its ranks end with"


def test_trace_of_an_unmodified_script(tmp_path: Path) -> None:
    leftover = trace.part_path(tmp_path / "out.json", 5)
    leftover.write_text("of an earlier run")
    done = record(
        tmp_path,
        flags=(
            *("-o", "out.json", "--plot", "step.png", "--perfetto", "out.gz", "--debug", "record_steps=4"),
            *("--timeline-filename", str(tmp_path / "horovod.json")),
        ),
    )
    assert done.returncode == 0, done.stderr
    merged = trace.load(tmp_path / "out.json")
    assert trace.parts(tmp_path / "out.json") == []
    assert merged.missing == []
    for one in merged.ranks:
        assert one.library == "torch"
        assert {tensor.name: tensor.size_bytes for tensor in one.tensors} == {
            f"allreduce.w{number}": 4 * elements for number, elements in enumerate(SIZES)
        }
        assert [step.index for step in one.steps] == list(range(STEPS))[-4:]
        for step in one.steps:
            assert sorted(arrival.tensor for arrival in step.arrivals) == [0, 1, 2]
            carried = [tensor for collective in step.collectives for tensor in collective.tensors]
            assert sorted(carried) == [0, 1, 2]
            assert sum(collective.size_bytes for collective in step.collectives) == 4 * sum(SIZES)
            assert min(collective.start_s for collective in step.collectives) >= step.start_s
    assert trace_summary.summarise(merged.ranks).bytes_per_step == 4 * sum(SIZES)
    assert "Trace of 2 ranks" in done.stdout
    assert "Slowest tensors" in done.stdout
    assert (tmp_path / "step.png").read_bytes().startswith(b"\x89PNG")
    found = tracks(json.loads(gzip.decompress((tmp_path / "out.gz").read_bytes())))
    ready = found["Horovod's timeline (rank 0)"]
    assert set(ready) == {tensor.name for tensor in merged.ranks[0].tensors}
    assert all(sum(each["name"] == "ALLREDUCE" for each in slices) == STEPS for slices in ready.values())
    for one in merged.ranks:
        own, gradients = found[f"rank {one.rank} on {one.host}"], found[f"rank {one.rank}: gradients"]
        assert len(own["steps"]) == 4
        messages = [each for name, lane in own.items() if name.startswith("messages") for each in lane]
        assert len(messages) == one.totals.messages
        assert {name: len(slices) for name, slices in gradients.items()} == dict.fromkeys(
            (tensor.name for tensor in one.tensors), 4
        )
    assert not flight_recorder.folder(tmp_path / "out.json").exists(), "the run succeeded"


def test_failed_script_keeps_its_trace_and_names_the_rank_that_has_none(tmp_path: Path) -> None:
    done = record(tmp_path, "vanish")
    assert done.returncode == 1, "horovodrun's code, not that of an error of ours"
    merged = trace.load(tmp_path / "trace.json")
    assert merged.missing == [1], done.stderr
    assert len(merged.ranks[0].steps) == STEPS
    assert "No trace of rank 1 of 2" in done.stderr
    dumps = flight_recorder.folder(tmp_path / "trace.json")
    assert [path.name for path in dumps.iterdir()] == ["rank_0"]
    assert f"`torchfrtrace {dumps}`" in " ".join(done.stderr.split())


ENDLESS = """
import itertools, sys
import torch
import horovod.torch as hvd

hvd.init()
for step in itertools.count():
    if "stuck" in sys.argv and step == 5:
        print("five steps", flush=True)
        hvd.allreduce(torch.ones(3), name=f"of rank {hvd.rank()} alone")  # both wait, where Python does not see it
    hvd.allreduce(torch.ones(3), name="w")
    if step == 5:
        print("five steps", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "words"),
    [
        pytest.param(signal.SIGINT, [], id="Ctrl-C"),
        more(signal.SIGTERM, [], id="SIGTERM"),
        more(signal.SIGINT, ["stuck"], id="Ctrl-C while all ranks wait"),
    ],
)
def test_interrupted_record_leaves_its_trace(number: signal.Signals, words: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [*PACELINE, "record", "-np", "2", sys.executable, str(written(tmp_path, ENDLESS)), *words]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, **QUIET},
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
        )
    limit = time.monotonic() + 150
    while log.read_text().count("five steps") < 2:
        assert time.monotonic() < limit and process.poll() is None, log.read_text()
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(number)
    assert process.wait(150) == 130, log.read_text()
    merged = trace.load(tmp_path / "trace.json")
    assert merged.missing == [], log.read_text()
    assert all(len(one.steps) >= 4 for one in merged.ranks)
    assert "Trace of 2 ranks" in log.read_text()


def test_plan_from_a_recorded_trace(tmp_path: Path) -> None:
    # Every tensor alone: three sizes, so that a cost can be fitted.
    done = record(tmp_path, flags=("--fusion-threshold-mb", "0"))
    assert done.returncode == 0, done.stderr
    words = ["plan", "trace.json", "--json", "-o", "plan.json", "--plot", "plan.png"]
    done = finished(*PACELINE, *words, folder=tmp_path, timeout_s=60)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    sizes = {f"allreduce.w{number}": 4 * elements for number, elements in enumerate(SIZES)}
    assert {one["name"]: one["bytes"] for one in found["gradients"]} == sizes
    ready_s = [one["ready_s"] for one in found["gradients"]]
    assert ready_s == sorted(ready_s)
    assert 0 < ready_s[-1] < found["measured"]["finish_s"]
    assert (found["ranks"], found["steps"]) == (2, STEPS - from_trace.WARM_UP_STEPS)
    assert found["measured"]["messages"] == found["predicted"]["none"]["messages"] == len(SIZES)
    assert min(found["predicted"], key=lambda name: found["predicted"][name]["finish_s"]) == found["best"]
    written = json.loads((tmp_path / "plan.json").read_text())
    assert written["groups"] == [group["tensors"] for group in found["groups"]]
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
