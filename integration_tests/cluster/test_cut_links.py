"""A link of an emulated host is cut in the middle of a message: for some seconds, and for good."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.cluster import QUIET
from integration_tests.support.more import more
from paceline.examples.benchmarks.cluster import Cluster
from paceline.examples.benchmarks.cluster.network import SWITCH

HOROVODRUN = Path(sys.executable).parent / "horovodrun"
LIMIT_S = 8  # HOROVOD_GLOO_TIMEOUT_SECONDS
# 20 messages of 4 MB at 50 Mbit/s: more than 10 s.
SCRIPT = """
import sys
import time
import torch
import paceline.torch as hvd

hvd.init()
last = time.monotonic()
given = torch.arange(1_000_003, dtype=torch.float32) % 1000 + hvd.rank()
wanted = (torch.arange(1_000_003, dtype=torch.float32) % 1000) * hvd.size() + sum(range(hvd.size()))
for step in range(20):
    try:
        assert torch.equal(hvd.allreduce(given, op=hvd.Sum, name="large"), wanted), step
    except hvd.HorovodInternalError as error:
        print("HEARD", hvd.rank(), round(time.monotonic() - last), " ".join(str(error).split()), flush=True)
        sys.exit(3)
    last = time.monotonic()
    if step == 2 and hvd.rank() == 0:
        open(sys.argv[1], "w").close()
print("WELL", hvd.rank(), flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(hosts=3, rate="50mbit") as cluster:
        yield cluster


def _cut(cluster: Cluster, host: int, begun: Path, for_s: float) -> None:
    """When ranks are in the middle of messages: the host's port of the switch. Its own interface notices nothing."""
    limit_s = time.monotonic() + 80
    while not begun.exists():
        if time.monotonic() > limit_s:
            return  # the test sees that nothing was cut
        time.sleep(0.02)
    time.sleep(0.1)
    for state, pause_s in (("down", for_s), ("up", 0.0)):
        network = cluster._live()
        subprocess.run(
            ["ip", "-n", network.namespace(SWITCH), "link", "set", network.names[host], state], check=True, timeout=10
        )
        time.sleep(pause_s)


def _run(
    cluster: Cluster, folder: Path, collective: str, cut_s: float, limit_s: int = LIMIT_S
) -> subprocess.CompletedProcess[str]:
    script, begun = folder / "train.py", folder / "begun"
    script.write_text(SCRIPT)
    cutter = threading.Thread(target=_cut, args=(cluster, 1, begun, cut_s))
    cutter.start()
    try:
        return cluster.run(
            [HOROVODRUN, "-np", "3", "-H", cluster.host_list, sys.executable, script, begun],
            env={
                **QUIET,
                "PACELINE_COLLECTIVE": collective,
                "HOROVOD_GLOO_TIMEOUT_SECONDS": str(limit_s),
            },
            timeout_s=130,
        )
    finally:
        cutter.join()


@pytest.mark.soak
@pytest.mark.parametrize("collective", ["linear", "direct"])
def test_a_link_that_comes_back_costs_time_only(cluster: Cluster, tmp_path: Path, collective: str) -> None:
    # TCP tries again after twice the time it waited before: up to as long as the link was cut after it is back.
    done = _run(cluster, tmp_path, collective, cut_s=5.0, limit_s=4 * 5)
    assert done.returncode == 0 and (tmp_path / "begun").exists(), done.stdout + done.stderr
    assert sorted(re.findall(r"WELL (\d)", done.stdout)) == ["0", "1", "2"], done.stdout + done.stderr


@pytest.mark.parametrize("collective", [more("linear"), pytest.param("ring", marks=pytest.mark.soak)])
def test_a_link_that_stays_cut_is_an_error_on_every_rank_within_the_limit(
    cluster: Cluster, tmp_path: Path, collective: str
) -> None:
    # The link is up again at the end, so that horovodrun can end the processes that it started there.
    done = _run(cluster, tmp_path, collective, cut_s=4.0 * LIMIT_S)
    assert done.returncode != 0
    heard = {
        int(rank): (int(after_s), text) for rank, after_s, text in re.findall(r"HEARD (\d) (\d+) (.*)", done.stdout)
    }
    assert {0, 2} <= set(heard), done.stdout + done.stderr
    for rank, (after_s, text) in heard.items():
        assert after_s <= 2 * LIMIT_S, (rank, text)
        assert re.search(r"Rank \d", text), text
