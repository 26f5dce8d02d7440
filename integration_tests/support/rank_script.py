"""Script for the ranks of launching tests: reduce with Horovod, then act on the argument.

Arguments: nothing; `raise R`: rank R raises; `kill R`: rank R kills itself; `wait R FILE`: all wait, the process id of
rank R's parent is written to FILE; `exit R CODE`; `leave R`: rank R ends its script before the others.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import torch


def main() -> None:
    what, *arguments = sys.argv[1:] or ["train"]
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for step in range(3):
        total = hvd.allreduce(torch.tensor([float(rank + 1) * (step + 1)]), op=hvd.Sum, name="gradient")
        assert total.item() == size * (size + 1) / 2 * (step + 1), total
    report = {"rank": rank, "size": size, "local_rank": hvd.local_rank(), "local_size": hvd.local_size()}
    report |= {"cross_rank": hvd.cross_rank(), "cross_size": hvd.cross_size(), "host": socket.gethostname()}
    report |= {"iface": os.environ.get("HOROVOD_GLOO_IFACE"), "fusion": os.environ.get("PACELINE_FUSION")}
    report |= {"time": time.time()}
    print("REPORT", json.dumps(report), flush=True)
    if what != "train" and rank == int(arguments[0]):
        if what == "raise":
            raise ValueError("rank failed on purpose")
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "exit":
            os._exit(int(arguments[1]))
        if what == "leave":
            return
        if what == "wait":
            Path(arguments[1]).write_text(str(os.getppid()))
    if what == "wait":
        time.sleep(120)
    if what != "train":
        hvd.allreduce(torch.ones(2), name="after")
    hvd.shutdown()


if __name__ == "__main__":
    main()
