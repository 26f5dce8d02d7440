"""A rank of Gloo's benchmark.

    python -m paceline.examples.benchmarks.outside.gloo_ranks PROGRAM ARGUMENTS

ARGUMENTS are a list in JSON. horovodrun gives rank and size, which the program takes as arguments. Ranks find each
other through a folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def main(program: str, arguments: list[str]) -> None:
    """Become the program."""
    rank, size = os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]
    # Equal on all ranks of a run, and different from those of other runs.
    place = Path(tempfile.gettempdir()) / f"gloo-benchmark-{os.environ['MASTER_ADDR']}-{os.environ['MASTER_PORT']}"
    place.mkdir(mode=0o700, exist_ok=True)
    words = ["--rank", rank, "--size", size, "--shared-path", str(place), "--prefix", "paceline", "--transport", "tcp"]
    words += ["--tcp-device", os.environ["GLOO_SOCKET_IFNAME"]]
    os.execv(program, [program, *words, *arguments])


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
