"""Settings of a pipelined exchange.

Pipe-SGD (Li et al., "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training", NeurIPS
2018): with iteration dependency K, the update of step t uses the combined gradients of step t - (K - 1), so that
communication has K - 1 further steps to complete. All ranks apply the same gradients in the same order and keep equal
weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paceline import option
from paceline.core import _core
from paceline.exchange.declaration import Declaration, ExchangeSettings, setting, whole

OWN = "own"


def _correction(text: str) -> float | str:
    """Parse OWN, or a number from 0 to below 1."""
    return OWN if text == OWN else option.share(text)


@dataclass(frozen=True)
class Pipelined(ExchangeSettings):
    """Pipe-SGD: updates with gradients that are delayed by K - 1 steps.

    `annealing_steps`, `correction` and `compensation` compensate for staleness (PipeMare: Yang et al., MLSys 2021) and
    are off by default.

    Args:
        k: the iteration dependency K, 1 to 64; 1 is the synchronous exchange.
        warmup_steps: number of synchronous updates at the beginning.
        annealing_steps: number of pipelined updates in which the learning rate grows from 1 / (K - 1) of its value to
            its value; 0 disables it.
        correction: compute gradients at the weights expected when the gradients are applied. The value, above 0 and
            below 1, such as 0.1, is the share of an old change of the weights that is left in their trend after K - 1
            updates; 0 disables it. "own" means compensation="own".
        compensation: "own": compute gradients at the weights that an update with this rank's own gradient in flight
            would produce (PyTorch, K = 2).

    Raises:
        UserError: for other values.
    """

    results_wait: ClassVar[bool] = True

    k: int = setting(
        2, option="pipelined_k", parse=option.positive, kind="whole number",
        meaning="iteration dependency K of the pipelined exchange: gradients are delayed by K - 1 steps",
        agreed="K", otherwise=lambda ranks: 1,
    )  # fmt: skip
    warmup_steps: int = setting(
        0, option="pipelined_warmup_steps", parse=option.count, kind="whole number", unit="updates",
        meaning="number of synchronous updates before the pipelined exchange begins", agreed="warm-up steps",
    )  # fmt: skip
    annealing_steps: int = setting(0, agreed="annealing steps")
    correction: Any = setting(
        0.0, option="pipelined_correction", parse=_correction, kind="number or own",
        meaning="compute gradients at the weights that are predicted for their update. A number: the share of an old "
        "change of the weights that is left after K - 1 updates, such as 0.01; own: the weights after an update with "
        "this rank's own gradient (PyTorch); 0 disables it",
        agreed="correction (in millionths)", number=lambda one, ranks: round(one.correction * 1e6),
    )  # fmt: skip
    compensation: str = setting("", agreed="compensation", number=lambda one, ranks: int(one.compensation == OWN))

    def __post_init__(self) -> None:
        if self.correction == OWN:
            object.__setattr__(self, "correction", 0.0)
            object.__setattr__(self, "compensation", OWN)
        right = isinstance(self.correction, (int, float)) and 0 <= self.correction < 1
        self._require(
            ("k", whole(self.k, 1, _core.MOST_K), f"Use a whole number from 1 to {_core.MOST_K}; 2 is usual."),
            ("warmup_steps", whole(self.warmup_steps, 0), "Use a whole number, 0 or more."),
            ("annealing_steps", whole(self.annealing_steps, 0), "Use a whole number, 0 or more."),
            ("correction", right, "Use a number above 0 and below 1, such as 0.1, or 0 for no correction."),
            ("compensation", self.compensation in ("", OWN), f"Use {OWN!r}, or leave it out."),
            ("k", self.k == 2 or not self.compensation, f"Use k=2 with compensation={OWN!r}."),
            ("correction", not (self.correction and self.compensation), "Give correction or compensation, not both."),
        )

    @property
    def tag(self) -> int:
        """The iteration dependency K."""
        return self.k

    @property
    def synchronous(self) -> bool:
        """True if K = 1."""
        return self.k == 1

    @property
    def expected(self) -> str:
        """Description, for errors, of a saved state with this K."""
        return f"gradients in flight of k={self.k}"

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """Problem and remedy for tapes with compensation, which changes weights and learning rates."""
        if not self.compensates:
            return None
        return (
            f"A tape was given {self}.",
            "Use hvd.DistributedOptimizer of paceline.keras, which compensates for staleness, or leave it out.",
        )

    @property
    def delay(self) -> int:
        """tau: the age of gradients when they are applied, in updates."""
        return self.k - 1

    @property
    def compensates(self) -> bool:
        """True if staleness is compensated for."""
        return self.delay > 0 and (self.annealing_steps > 0 or self.correction > 0 or self.compensation == OWN)


DECLARATION = Declaration(
    settings=Pipelined,
    short="pipelined (those of all ranks, one step later)",
    text="updates use gradients of k - 1 steps ago, which travel while later ones are computed",
    in_flight=lambda tag: f"those of k={tag}" if tag > 1 else "",
)
