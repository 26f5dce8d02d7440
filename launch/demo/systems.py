"""The runs that the demo compares."""

from __future__ import annotations

from dataclasses import dataclass

_PLANNED = (("PACELINE_FUSION", "optimal"),)
LATE_MS = 60.0


@dataclass(frozen=True)
class System:
    """One run: its label, the variables in front of the command, and the delay of a rank in each step.

    `late_ms`: delay of one rank, another one in each step. `wrapper`: "hvd", or "ddp" for PyTorch's own.
    """

    label: str
    variables: tuple[tuple[str, str], ...] = ()
    wrapper: str = "hvd"
    late_ms: float = 0.0

    @property
    def shown(self) -> str:
        """Variables as a user types them."""
        return " ".join(f"{name}={value}" for name, value in self.variables)


STOCK = System("Horovod")
STOCK_LATE = System("Horovod, a rank late", late_ms=LATE_MS)
_SHARED = (
    System("merged by plan", _PLANNED),
    System("pipelined", (("PACELINE_EXCHANGE", "pipelined"),)),
    System("merged, 8-bit codec", (*_PLANNED, ("PACELINE_CODEC", "q8"))),
)


@dataclass(frozen=True)
class Framework:
    """A framework of the demo: its packages, Horovod's library for it, our script, its data and its runs."""

    name: str
    packages: tuple[str, ...]
    library: str
    script: str
    data: str
    steps: int
    systems: tuple[System, ...]
    environment: tuple[tuple[str, str], ...] = ()


FRAMEWORKS = (
    Framework(
        "PyTorch",
        ("torch",),
        "torch",
        "demo.train_torch",
        "next character of Python's standard library",
        200,
        (
            STOCK,
            System("DDP", wrapper="ddp"),
            *_SHARED,
            STOCK_LATE,
            System("majority, a rank late", (("PACELINE_EXCHANGE", "majority"),), late_ms=LATE_MS),
        ),
    ),
    Framework(
        "Keras",
        ("keras", "tensorflow"),
        "tensorflow",
        "demo.train_keras",
        "handwritten digits",
        225,
        (STOCK, *_SHARED),
        (("KERAS_BACKEND", "tensorflow"), ("TF_CPP_MIN_LOG_LEVEL", "2")),
    ),
)


def baseline(system: System) -> System:
    """Return the run of stock Horovod that `system` is compared with."""
    return STOCK_LATE if system.late_ms else STOCK
