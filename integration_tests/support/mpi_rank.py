"""One rank that mpirun started: runs the body that a file names, and writes its result into another file."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

from integration_tests.support.worker import call


def main() -> None:
    folder = Path(sys.argv[1])
    module, name, args = pickle.loads((folder / "call").read_bytes())
    rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{word}"]) for word in ("RANK", "SIZE"))
    result = call(module, name, (rank, size, *args))
    (folder / str(rank)).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    main()
