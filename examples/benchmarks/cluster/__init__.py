"""An emulated cluster on one Linux machine: hosts with links of a given rate, for `horovodrun -H` and benchmarks.

    with Cluster(hosts=4, rate="1gbit") as cluster:
        cluster.run(["horovodrun", "-np", "4", "-H", cluster.host_list, sys.executable, "train.py"])

docs/measurements/cluster.md lists what is emulated and what is not.
"""

from paceline.examples.benchmarks.cluster.cluster import Cluster
from paceline.examples.benchmarks.cluster.errors import ClusterError
from paceline.examples.benchmarks.cluster.lifetime import remove_stale
from paceline.examples.benchmarks.cluster.network import HostCounters

__all__ = ["Cluster", "ClusterError", "HostCounters", "remove_stale"]
