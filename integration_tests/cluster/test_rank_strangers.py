"""`paceline rank` on two emulated hosts, and a third host that is not of the job: what listens, and who is answered."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from integration_tests.support.cluster import PACELINE_RANK, QUIET, wait_until
from paceline.examples.benchmarks.cluster import Cluster

SECRET = {"_HOROVOD_SECRET_KEY": "secret of the job"}
# A rank that writes where the rendezvous listens, and ends when the file `end` exists.
RANK = """
import os, pathlib, sys, time
import horovod.torch as hvd
import torch
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2
found = "{HOROVOD_GLOO_RENDEZVOUS_ADDR}:{HOROVOD_GLOO_RENDEZVOUS_PORT}".format(**os.environ)
folder = pathlib.Path(sys.argv[1])
half = folder / f"half{hvd.rank()}"
half.write_text(found)
half.rename(folder / f"rank{hvd.rank()}")
deadline = time.monotonic() + 60
while not (folder / "end").exists() and time.monotonic() < deadline:
    time.sleep(0.1)
hvd.allreduce(torch.ones(1), name="end")
"""
# Reads and writes keys, as Gloo does; prints what it got.
ASK = """
import http.client, json, sys, urllib.request
answers = []
for method, scope in (("GET", "global"), ("PUT", "global"), ("HEAD", "global"), ("GET", "worker_addresses")):
    data = b"1" if method == "PUT" else None
    request = urllib.request.Request(f"http://{sys.argv[1]}/{scope}/0", data, method=method)
    try:
        answers.append(urllib.request.urlopen(request, timeout=10).status)
    except OSError as error:
        answers.append(getattr(error, "code", "no answer"))
print(json.dumps(answers))
"""
LISTENS = """
import json, psutil
found = [at.laddr for at in psutil.net_connections("inet") if at.status == psutil.CONN_LISTEN]
print(json.dumps(sorted({at.ip for at in found if at.port != 22})))  # the host's sshd
"""


def task(cluster: Cluster, rank: int, host: int, words: str, *command: str, env: dict[str, str]) -> Any:
    line = [*PACELINE_RANK, *f"--rank {rank} --size 2 {words} --".split(), *command]
    pipe = subprocess.PIPE
    return cluster.popen(line, host=host, env={**os.environ, **QUIET, **env}, stdout=pipe, stderr=pipe, text=True)


def said_by(cluster: Cluster, host: int, script: str, *words: str) -> Any:
    process = cluster.popen([sys.executable, "-c", script, *words], host=host, stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=60)
    return json.loads(output)


def test_a_host_without_the_secret_gets_no_answer_and_a_line_says_so(four_hosts: Cluster, tmp_path: Path) -> None:
    address, stranger = four_hosts.addresses[0], four_hosts.addresses[2]
    words = f"--rendezvous {address}:29433"
    command = (sys.executable, "-c", RANK, str(tmp_path))
    tasks = [task(four_hosts, rank, rank, words, *command, env=SECRET) for rank in range(2)]
    try:
        wait_until(lambda: all((tmp_path / f"rank{rank}").exists() for rank in range(2)), "no rank has begun")
        servers = {(tmp_path / f"rank{rank}").read_text() for rank in range(2)}
        # Ranks of both hosts use the one address on which the server listens.
        assert {server.split(":")[0] for server in servers} == {address}
        assert said_by(four_hosts, 0, LISTENS) == [address]
        (server,) = servers
        assert said_by(four_hosts, 2, ASK, server) == ["no answer"] * 4
        assert said_by(four_hosts, 1, ASK, server)[1] == 200, "a host of the job is answered"
        # A task that knows the job's name, but not its secret.
        began_s = time.monotonic()
        other = task(four_hosts, 1, 2, words, "true", env={"_HOROVOD_SECRET_KEY": "guessed"})
        _, refused = other.communicate(timeout=60)
        assert other.returncode == 2
        assert time.monotonic() - began_s < 60
    finally:
        (tmp_path / "end").touch()
        ends = [(one.communicate(timeout=90), one.returncode) for one in tasks]
    assert [code for _, code in ends] == [0, 0], ends
    errors = " ".join(ends[0][0][1].split())
    assert len(re.findall(f"Horovod's rendezvous on rank 0 refused {stranger}: no task of this job", errors)) == 1
    assert f"Rank 0 refused a task on {stranger}, which calls itself rank 1 on host2" in errors
    refused = " ".join(refused.split())
    assert f"Rank 1 on host2 was refused by rank 0 on {address}: this task has another _HOROVOD_SECRET_KEY" in refused
    assert "Give all tasks of the job the same _HOROVOD_SECRET_KEY, or none" in refused
