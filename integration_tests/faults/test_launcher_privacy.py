"""Patches of horovodrun that hide the environment of ranks and restrict listening addresses."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOROVODRUN = [sys.executable, "-m", "horovod.runner.launch"]
QUIET = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

# All special characters of a shell.
TOKEN = 'token-5150 it\'s "quoted" $HOME `id` \\ %s !\n  and has a second line'


def outputs(words: list[str], env: dict[str, str]) -> dict[int, Any]:
    """JSON output of each rank."""
    done = subprocess.run(
        [*HOROVODRUN, *words], env={**os.environ, **QUIET, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = (line.partition("<stdout>:") for line in done.stdout.splitlines())
    return {int(rank.strip("[]")): json.loads(text) for rank, _, text in found if text.startswith("{")}


def program(folder: Path, name: str, text: str) -> Path:
    """Write a shell script `name` into a folder for PATH."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# --- private-environment: `ps` showed every variable of the launching shell to every user, on both ends of ssh, for the
# whole job; also the key of the launcher's services.

# Prints the received environment, and the command lines of this machine that contain the token.
_SEES = """
import json, os, pathlib
token = os.environ["API_TOKEN"]
seen = []
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        text = path.read_text(errors="replace")
    except OSError:
        continue
    if token.split()[0] in text:
        seen.append(text[:200])
others = {name: os.environ.get(name) for name in ("HOROVOD_RANK", "a.dotted-name", "UID")}
print(json.dumps({"token": token, "seen": seen, "stdin": os.read(0, 9).hex(), **others}))
"""
_ENVIRONMENT = {"API_TOKEN": TOKEN, "a.dotted-name": "it's odd", "UID": "4711"}


def expected(rank: int) -> dict[str, Any]:
    others = {"HOROVOD_RANK": str(rank), "a.dotted-name": "it's odd", "UID": "4711"}
    return {"token": TOKEN, "seen": [], "stdin": "", **others}


@pytest.mark.patch("private-environment")
def test_no_command_line_on_this_host_has_the_environment_in_it(tmp_path: Path) -> None:
    # Some shells become the rank that they start: their command lines disappear before the test can read them.
    log = tmp_path / "env.log"
    env = program(tmp_path, "env", f'printf "%s\\n" "$*" >>{log}; exec /usr/bin/env "$@"')
    path = f"{env.parent}{os.pathsep}{os.environ['PATH']}"
    found = outputs(["-np", "2", sys.executable, "-c", _SEES], {**_ENVIRONMENT, "PATH": path})
    assert found == {0: expected(0), 1: expected(1)}
    assert "HOROVOD_GLOO_RENDEZVOUS_PORT" in log.read_text()
    assert "token-5150" not in log.read_text()


@pytest.fixture
def other_host(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """PATH with an ssh that runs commands here in a new environment, and the log of its command lines.

    To Horovod 127.0.0.9 is another host: no interface has this address.
    """
    log = tmp_path / "ssh.log"
    ssh = program(
        tmp_path,
        "ssh",
        f'printf "%s\\n" "$*" >>{log}\n'
        'while [ "$1" = -o ]; do shift 2; done; shift\nwhile [ "$1" = -o ]; do shift 2; done\n'
        'PATH=${PATH#*:}; env -i PATH="$PATH" HOME="$HOME" sh -c "$*"',
    )
    return {"PATH": f"{ssh.parent}{os.pathsep}{os.environ['PATH']}"}, log


def keys(log: str) -> list[str]:
    """Words of command lines that contain a job's settings, and therefore its key."""
    return [word for word in log.split() if len(word) > 100 and b"runner.common.util.settings" in decoded(word)]


def decoded(word: str) -> bytes:
    try:
        return base64.b64decode(word, validate=True)
    except ValueError:
        return b""


@pytest.mark.patch("private-environment")
def test_no_command_line_of_ssh_has_the_environment_or_the_key_in_it(
    other_host: tuple[dict[str, str], Path], tmp_path: Path
) -> None:
    env, log = other_host
    words = ["-np", "2", "-H", "127.0.0.9:2", "--disable-cache", sys.executable, "-c", _SEES]
    assert outputs(words, {**_ENVIRONMENT, **env}) == {0: expected(0), 1: expected(1)}
    assert "horovod.runner.task_fn" in log.read_text()
    assert keys(log.read_text()) == []
    assert "token-5150" not in log.read_text()


@pytest.mark.patch("private-environment")
def test_spark_gets_the_text_of_a_command_line() -> None:
    from paceline.horovod.shims.private_environment import Command

    found = pickle.loads(pickle.dumps(Command("env A=1 run", {"A": "1"}, "run")))
    assert type(found) is str and found == "env A=1 run"


# --- loopback-only: the rendezvous of a job on one host listened on all interfaces. Anybody who reached it could store
# data that an elastic launcher unpickles, and read the keys of all ranks' services.

# Addresses on which this process listens, and its parents up to the process that runs horovodrun: TESTING.
_LISTENING = """
def listening():
    import os, psutil
    family = [psutil.Process(), *psutil.Process().parents()]
    family = family[: [one.pid for one in family].index(int(os.environ["TESTING"]))]
    connections = [at for one in family for at in one.net_connections("inet")]
    return sorted({at.laddr.ip for at in connections if at.status == psutil.CONN_LISTEN})
"""
# In elastic jobs (--min-np) ranks have a service, too.
_LISTENS = f"""{_LISTENING}
import json, os, urllib.error, urllib.request
FILE = sorted(one for one in os.listdir(".") if os.path.isfile(one))[0]  # of the launcher's working directory
import torch
import horovod.torch as hvd

hvd.init()

@hvd.elastic.run
def look(state):
    found = listening()
    url = "http://{{HOROVOD_GLOO_RENDEZVOUS_ADDR}}:{{HOROVOD_GLOO_RENDEZVOUS_PORT}}".format(**os.environ)
    hvd.allreduce(torch.zeros(1), name="all have published where they listen")
    try:
        status = urllib.request.urlopen(url + "/worker_addresses/localhost:0", timeout=10).status
    except urllib.error.HTTPError as error:
        status = error.code
    try:
        head = urllib.request.urlopen(urllib.request.Request(url + "/" + FILE, method="HEAD"), timeout=10).status
    except urllib.error.HTTPError as error:
        head = error.code
    hvd.allreduce(torch.zeros(1), name="all have asked")
    print(json.dumps({{"listening": found, "keys": status, "head": head}}), flush=True)

look(hvd.elastic.TorchState(torch.nn.Linear(1, 1)))
"""
_RUN = f"""{_LISTENING}
if __name__ == "__main__":
    import horovod
    print(horovod.run(listening, np=2))
"""


@pytest.mark.patch("loopback-only")
def test_ranks_and_launcher_of_one_host_listen_on_loopback_alone() -> None:
    found = outputs(["-np", "2", sys.executable, "-c", _LISTENS], {"TESTING": str(os.getpid())})
    assert [found[rank]["listening"] for rank in (0, 1)] == [["127.0.0.1"]] * 2


@pytest.mark.patch("loopback-only", "private-environment")
def test_elastic_ranks_of_one_host_listen_on_loopback_alone_and_tell_no_keys_or_sizes_of_files(tmp_path: Path) -> None:
    discovery = program(tmp_path, "discover", "echo localhost:2")
    words = ["-np", "2", "--min-np", "2", "--host-discovery-script", str(discovery), sys.executable, "-c", _LISTENS]
    found = outputs(words, {"TESTING": str(os.getpid())})
    assert found == {rank: {"listening": ["127.0.0.1"], "keys": 404, "head": 405} for rank in (0, 1)}


@pytest.mark.patch("loopback-only")
def test_a_function_and_its_results_are_sent_over_loopback_alone(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(_RUN)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **QUIET, "TESTING": str(os.getpid())},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.splitlines()[-1] == "[['127.0.0.1'], ['127.0.0.1']]", done.stdout + done.stderr
