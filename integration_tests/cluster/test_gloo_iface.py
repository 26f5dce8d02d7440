"""Patch gloo-iface: hosts whose own name resolves to loopback (Debian's default) can still form a world."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paceline.examples.benchmarks.cluster import Cluster

PORT = 29411

RANK = f"""
import os, sys
if os.environ["HOROVOD_RANK"] == "0":
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousHTTPServer, RendezvousHandler
    import threading
    server = RendezvousHTTPServer(("", {PORT}), RendezvousHandler, False)
    server.init(get_host_assignments(parse_hosts("host0:1,host1:1"), 2))
    threading.Thread(target=server.serve_forever, daemon=True).start()
else:
    import time
    time.sleep(2)
import socket
assert socket.gethostbyname(socket.gethostname()) == "127.0.1.1"
import horovod.torch as hvd
import torch
hvd.init()
print("sum", hvd.allreduce(torch.tensor(float(hvd.rank() + 1)), op=hvd.Sum, name="sum").item())
"""


@pytest.mark.patch("gloo-iface")
def test_hosts_that_call_themselves_loopback_connect_over_the_interface(tmp_path: Path) -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars

    slots = get_host_assignments(parse_hosts("host0:1,host1:1"), 2)
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    with Cluster(hosts=2) as cluster:
        ranks = []
        for rank, (name, address) in enumerate(zip(cluster.names, cluster.addresses, strict=True)):
            hosts = tmp_path / f"hosts{rank}"
            hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
            env = {
                **create_run_env_vars(cluster.addresses[0], ["eth0"], str(PORT)),
                **create_slot_env_vars(slots[rank]),
                "HOROVOD_GLOO_TIMEOUT_SECONDS": "10",
            }
            assert address != "127.0.1.1"
            command = f"mount --bind {hosts} /etc/hosts && exec {sys.executable} {script}"
            ranks.append(
                cluster.popen(["unshare", "--mount", "sh", "-c", command], host=rank, env=env, stdout=-1, stderr=-2)
            )
        outputs = [process.communicate(timeout=60)[0] for process in ranks]
    for rank, output in enumerate(outputs):
        text = output.decode() if isinstance(output, bytes) else output
        assert "sum 3.0" in text, f"rank {rank}: {text}"
