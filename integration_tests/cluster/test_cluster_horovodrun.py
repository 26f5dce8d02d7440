"""horovodrun reaches emulated hosts with ordinary Horovod scripts, and `paceline run` names the hosts that are up."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.support.cluster import QUIET, reports
from paceline.examples.benchmarks.cluster import Cluster

SCRIPTS = Path(__file__).parent / "scripts"
HOROVODRUN = Path(sys.executable).parent / "horovodrun"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(hosts=4, rate="1gbit") as cluster:
        yield cluster


@pytest.mark.parametrize("script", ["plain_torch.py", pytest.param("plain_keras.py", marks=pytest.mark.more)])
def test_unmodified_script_trains_over_four_hosts(cluster: Cluster, script: str) -> None:
    assert "paceline" not in (SCRIPTS / script).read_text()
    before = cluster.counters()
    done = cluster.run(
        [HOROVODRUN, "-np", "4", "-H", cluster.host_list, sys.executable, SCRIPTS / script],
        env={**QUIET, "TF_CPP_MIN_LOG_LEVEL": "2"},
        timeout_s=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    places = reports(done.stdout, "rank", "size", "local_rank", "cross_size", "host")
    assert places == [(rank, 4, 0, 4, f"host{rank}") for rank in range(4)]
    ((_, accuracy),) = set(reports(done.stdout, "checksum", "accuracy"))
    assert accuracy > 0.9
    # The gradients did cross the links: 38 kB of them in each of 15 epochs' 9 steps.
    for old, new in zip(before, cluster.counters(), strict=True):
        assert min(new.sent_bytes - old.sent_bytes, new.received_bytes - old.received_bytes) > 1_000_000


@pytest.mark.more
def test_paceline_run_says_which_hosts_are_up_and_which_never_came(cluster: Cluster, tmp_path: Path) -> None:
    # On the last host a rank fails before it calls init().
    (tmp_path / "train.py").write_text(
        "import os, sys\n"
        "import horovod.torch as hvd\n"
        "import torch\n"
        "if os.environ['HOROVOD_RANK'] == sys.argv[1]:\n"
        "    import time\n"
        "    time.sleep(8)\n"  # the others have called init()
        "    os.kill(os.getpid(), 9) if sys.argv[2:] else sys.exit(3)\n"
        "hvd.init()\n"
        "hvd.allreduce(torch.ones(1), name='x')\n"
    )
    words: list[str | Path] = [
        HOROVODRUN.with_name("paceline"), "run", "-np", "3", "-H", "host0:1,host1:2", sys.executable,
    ]  # fmt: skip
    good = cluster.run([*words, tmp_path / "train.py", "none"], env=QUIET, timeout_s=60)
    assert good.returncode == 0, good.stdout + good.stderr
    assert re.search(r"^Up after \S+ s: host0, host1, with 3 ranks\.$", good.stderr, re.M), good.stderr
    assert re.search(r"^First step after \S+ s: rank 0 ", good.stderr, re.M), good.stderr
    bad = cluster.run([*words, tmp_path / "train.py", "2"], env=QUIET, timeout_s=60)
    assert bad.returncode != 0
    assert "\nNever came to hvd.init(): host1 (rank 2).\n" in bad.stderr, bad.stderr
    assert "Up after" not in bad.stderr
    assert "Error: Rank 2 on host1 failed first, with exit code 3." in bad.stderr
    killed = cluster.run([*words, tmp_path / "train.py", "2", "kill"], env=QUIET, timeout_s=60)
    assert "Error: Rank 2 on host1 failed first, with exit code " in killed.stderr
    assert "`dmesg`" in killed.stderr
