"""The patches of horovodrun: its imports before the first rank starts, and its waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HOROVODRUN = [sys.executable, "-m", "horovod.runner.launch"]
PACELINE = [sys.executable, "-m", "paceline.launch.cli"]
# Ranks that are not Python programs: what is imported is imported by the launcher.
SAY = ["sh", "-c", "echo rank $HOROVOD_RANK over $HOROVOD_GLOO_IFACE"]


def environment(**more: str) -> dict[str, str]:
    """Ours without what would quieten TensorFlow."""
    return {**{name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}, **more}


def discovery(folder: Path, hosts: str) -> tuple[Path, Path]:
    """A host discovery script, and the file that it prints."""
    found, script = folder / "hosts", folder / "discover.sh"
    found.write_text(hosts)
    script.write_text(f"#!/bin/sh\ncat {found}\n")
    script.chmod(0o755)
    return script, found


# --- light-launcher: two child processes imported TensorFlow to be asked whether Horovod was built with MPI and Gloo.


@pytest.fixture
def framework_traps(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """An environment in which importing a framework leaves a trace, and the trace."""
    trace = tmp_path / "imported"
    for name in ("tensorflow", "torch", "mxnet"):
        package = tmp_path / "traps" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            f"print({name!r}, file=open({str(trace)!r}, 'a'))\nraise ImportError('no launcher needs {name}')\n"
        )
    path = os.pathsep.join(filter(None, (str(tmp_path / "traps"), os.environ.get("PYTHONPATH"))))
    return environment(PYTHONPATH=path), trace


@pytest.mark.patch("light-launcher")
@pytest.mark.parametrize(
    "program",
    [[*HOROVODRUN], [*HOROVODRUN, "--gloo"], [*PACELINE, "run"], [*HOROVODRUN, "--min-np", "2"]],
    ids=["horovodrun", "gloo", "paceline run", "elastic"],
)
def test_no_framework_is_imported_before_the_ranks_start(
    program: list[str], framework_traps: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    env, trace = framework_traps
    if "--min-np" in program:
        script, _ = discovery(tmp_path, "localhost:2\n")
        program = [*program, "--host-discovery-script", str(script), "--network-interfaces", "lo"]
    done = subprocess.run(
        [*program, "-np", "2", *SAY], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:rank {rank} over lo" for rank in (0, 1)], done.stderr
    assert not trace.exists()
    assert [line for line in done.stderr.splitlines() if not line.startswith("paceline 0")] == []


_BUILT = """
import horovod.torch as hvd
print(*(part for part in ("MPI", "Gloo", "NCCL", "DDL", "CCL") if getattr(hvd, part.lower() + "_built")()))
"""


@pytest.mark.patch("light-launcher")
def test_check_build_says_what_the_libraries_say_and_nothing_else(tmp_path: Path) -> None:
    # A framework that cannot be imported, and logs as C++ does.
    (tmp_path / "tensorflow.py").write_text(
        "import os; os.write(1, b'noise'); os.write(2, b'noise'); raise ImportError"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    words = [[*HOROVODRUN, "--check-build"], [sys.executable, "-c", _BUILT]]
    asked = [subprocess.Popen(one, env=environment(PYTHONPATH=path), stdout=-1, stderr=-1, text=True) for one in words]
    (page, noise), (built, _) = (process.communicate(timeout=300) for process in asked)
    assert noise == ""
    assert "noise" not in page
    assert "Gloo" in built.split()
    has = {line.split("] ")[1].strip() for line in page.splitlines() if line.strip().startswith("[X]")}
    assert has == {*built.split(), "PyTorch"}


# --- two-signals: the handler of the second one waited for a lock of the handler of the first one.

_TWO_SIGNALS = """
import os, signal, sys, threading
from horovod.runner import gloo_run

def again(frame, event, argument):  # while the first one is taken, at each line of Event.set()
    if frame.f_code is threading.Event.set.__code__ and event == "line":
        os.kill(os.getpid(), signal.SIGTERM)
    return again

shutdown = gloo_run.register_shutdown_event()
sys.settrace(again)
os.kill(os.getpid(), signal.SIGINT)
sys.settrace(None)
print(shutdown.is_set())
"""


@pytest.mark.patch("two-signals")
def test_second_request_to_end_while_the_first_is_taken_blocks_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", _TWO_SIGNALS], capture_output=True, text=True, timeout=300)
    assert done.stdout == "True\n", done.stderr


# --- elastic-hosts: a job that fits on one host waited 600 s for a second one, and the wait was not reported.

_ELASTIC_RANK = """
import os, pathlib, sys, time
if os.environ["HOROVOD_RANK"] == "0":
    with pathlib.Path(sys.argv[1]).open("a") as hosts:
        print("240.0.0.1:2", file=hosts)  # a host that cannot reach ranks on loopback
import torch
import horovod.torch as hvd
hvd.init()
print("sum", hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum, name="sum").item(), hvd.size())
time.sleep(2.5)  # the launcher looks for hosts every second
"""


@pytest.mark.patch("elastic-hosts")
def test_elastic_job_that_fits_on_this_host_starts_there(tmp_path: Path) -> None:
    script, hosts = discovery(tmp_path, "localhost:2\n")
    words = [*HOROVODRUN, "-np", "2", "--min-np", "2", "--host-discovery-script", str(script)]
    done = subprocess.run(
        [*words, "--elastic-timeout", "15", sys.executable, "-c", _ELASTIC_RANK, str(hosts)],
        env=environment(CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:sum 3.0 2" for rank in (0, 1)]
    assert done.stderr.count("horovodrun leaves out the host 240.0.0.1: the job began when localhost was") == 1


@pytest.mark.patch("elastic-hosts")
def test_what_an_elastic_job_waits_for_is_reported(tmp_path: Path) -> None:
    cases = {
        "localhost:1\n": ("for slots for 2 ranks. Hosts found: localhost:1.\n", "--elastic-timeout"),
        "": ("for slots for 2 ranks. Hosts found: none.\n", "--elastic-timeout"),
        "240.0.0.1:2\n": ("for a second host, to learn", "--network-interfaces NAME"),
    }
    started = []
    for number, (hosts, expected) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        script, _ = discovery(folder, hosts)
        words = [*HOROVODRUN, "-np", "2", "--min-np", "2", "--elastic-timeout", "7" if not hosts else "3"]
        words += ["--host-discovery-script", str(script), *SAY]
        started.append((subprocess.Popen(words, stdout=-3, stderr=-1, text=True, env=environment()), expected))
    ended = []
    for process, expected in started:
        try:
            ended.append((process.communicate(timeout=300)[1], expected))
        finally:
            process.kill()
    for said, (problem, remedy) in ended:
        reported = said.partition("Traceback")[0]
        assert reported.startswith("horovodrun waits up to ")
        assert problem in reported
        assert remedy in reported
        assert reported.count("waits up to") == 1, "once, not with every look"


@pytest.mark.patch("elastic-hosts")
def test_ranks_of_this_host_use_the_interface_that_the_user_names() -> None:
    here = {
        name: [one.address for one in entries if one.family == 2] for name, entries in psutil.net_if_addrs().items()
    }
    others = [name for name, addresses in here.items() if addresses and "127.0.0.1" not in addresses]
    if not others:
        pytest.skip("this machine has no network interface but loopback")
    words = [*HOROVODRUN, "-np", "2", "--network-interfaces"]
    done = subprocess.run([*words, others[0], *SAY], capture_output=True, text=True, timeout=300, env=environment())
    assert sorted(done.stdout.splitlines()) == [f"[{rank}]<stdout>:rank {rank} over {others[0]}" for rank in (0, 1)]
    done = subprocess.run([*words, "eth-none", *SAY], capture_output=True, text=True, timeout=300, env=environment())
    assert done.returncode == 1
    assert "--network-interfaces eth-none: no such interface with an IPv4 address on this host." in done.stderr
    assert f"It has {', '.join(sorted(others))}" in done.stderr
