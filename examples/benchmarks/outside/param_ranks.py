"""A rank of PARAM's comms.py with a back end for Horovod.

    python -m paceline.examples.benchmarks.outside.param_ranks FOLDER ARGUMENTS

ARGUMENTS are a list in JSON: horovodrun would take some of the program's short options for abbreviations of its own.

The program has an interface for back ends that others register. Ours inherits from its back end for torch.distributed,
whose Gloo still carries what is not measured: barriers between calls and the ranks' times. `--backend gloo` runs the
program without it.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from typing import Any

from paceline.examples.benchmarks.outside.jobs import torch_variables

NAME = "horovod"
_PACKAGE = "param_bench"  # as the program imports itself
_PT = f"{_PACKAGE}.train.comms.pt"


class _Work:
    """A call in flight, as the program waits for it."""

    def __init__(self, synchronize: Any, handle: int) -> None:
        self._synchronize = synchronize
        self._handle = handle

    def wait(self) -> None:
        """Return when the result is there."""
        self._synchronize(self._handle)


def back_end(base: Any) -> Any:
    """Return the back end, derived from the program's for torch.distributed."""

    class HorovodBackend(base):
        """Allreduces and broadcasts by Horovod, in place."""

        def initialize_backend(self, master_ip: str, master_port: str, backend: str = "gloo", **options: Any) -> None:
            import paceline.torch as hvd
            from paceline.arguments import choice_asked

            super().initialize_backend(master_ip, master_port, backend="gloo", **options)
            hvd.init()
            self._hvd: Any = hvd
            # A codec applies to gradients, not to a script's own allreduces, unless their names have its mark.
            self._mark = choice_asked().mark

        def all_reduce(self, collectiveArgs: Any, retFlag: bool = False, **others: Any) -> Any:
            tensor = collectiveArgs.ipTensor
            name = f"{self._mark}param.{tensor.numel()}"
            return self._begun(collectiveArgs, retFlag, self._hvd.allreduce_async_(tensor, op=self._hvd.Sum, name=name))

        def broadcast(self, collectiveArgs: Any, retFlag: bool = False, **others: Any) -> Any:
            tensor = collectiveArgs.opTensor
            handle = self._hvd.broadcast_async_(tensor, collectiveArgs.srcOrDst, name=f"param.{tensor.numel()}")
            return self._begun(collectiveArgs, retFlag, handle)

        def _begun(self, collectiveArgs: Any, wanted: bool, handle: int) -> Any:
            work = _Work(self._hvd.synchronize, handle)
            if collectiveArgs.asyncOp:
                collectiveArgs.waitObj.append(work)
            else:
                work.wait()
            return work if wanted else None

    return HorovodBackend


def main(folder: str, arguments: list[str]) -> None:
    """Run comms.py from the checkout in `folder`."""
    torch_variables()
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [folder]
    sys.modules[_PACKAGE] = package
    comms = importlib.import_module(f"{_PT}.comms")
    if NAME in arguments:
        base = importlib.import_module(f"{_PT}.pytorch_dist_backend").PyTorchDistBackend
        importlib.import_module(f"{_PT}.pytorch_backend_utils").register_customized_backend(NAME, back_end(base))
    sys.argv = ["comms.py", *arguments]
    comms.main()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
