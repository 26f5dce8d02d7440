"""What a pipelined exchange is given.

Pipe-SGD (Li et al., "Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training", NeurIPS
2018): with iteration dependency K the update of step t uses the combined gradients of step t - (K - 1), so that
communication has K - 1 further steps to end. All ranks apply the same gradients in the same order and keep equal
weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline import option
from paceline.core import _core
from paceline.exchange.declaration import Declaration, ExchangeSettings, setting, whole


@dataclass(frozen=True)
class Pipelined(ExchangeSettings):
    """Updates with gradients that are K - 1 steps old.

    `k`: the iteration dependency K, 1 to 64; 1 is the synchronous exchange. `warmup_steps`: updates that are made
    synchronously first. Compensation of staleness (staleness.py), both off by default: `annealing_steps`: the learning
    rate begins divided by K - 1 and has its own value after so many pipelined updates, 0: at once. `correction`:
    gradients are computed at the weights that are expected when they will be applied; so much (0 < correction < 1, 0.1
    for example) is left of an old change of the weights after K - 1 updates, 0: no correction.
    Raises UserError for other values.
    """

    results_wait: ClassVar[bool] = True

    k: int = setting(
        2, option="pipelined_k", parse=option.positive, kind="whole number",
        meaning="iteration dependency K of the pipelined exchange: gradients are K - 1 steps old when they are used",
        agreed="K", otherwise=lambda ranks: 1,
    )  # fmt: skip
    warmup_steps: int = setting(
        0, option="pipelined_warmup_steps", parse=option.count, kind="whole number", unit="updates",
        meaning="make this many updates synchronously before exchanges are pipelined", agreed="warm-up steps",
    )  # fmt: skip
    annealing_steps: int = setting(0, agreed="annealing steps")
    correction: float = setting(
        0.0, option="pipelined_correction", parse=option.share, kind="number",
        meaning="compute gradients at the weights expected when they will be used: what is left of an old change of "
        "the weights after K - 1 updates, such as 0.1; 0: off",
        agreed="correction (in millionths)", number=lambda one, ranks: round(one.correction * 1e6),
    )  # fmt: skip

    def __post_init__(self) -> None:
        right = isinstance(self.correction, (int, float)) and 0 <= self.correction < 1
        self._require(
            ("k", whole(self.k, 1, _core.MOST_K), f"Use a whole number from 1 to {_core.MOST_K}; 2 is usual."),
            ("warmup_steps", whole(self.warmup_steps, 0), "Use a whole number, 0 or more."),
            ("annealing_steps", whole(self.annealing_steps, 0), "Use a whole number, 0 or more."),
            ("correction", right, "Use a number above 0 and below 1, such as 0.1, or 0 for no correction."),
        )

    @property
    def tag(self) -> int:
        """See ExchangeSettings.tag."""
        return self.k

    @property
    def synchronous(self) -> bool:
        """See ExchangeSettings.synchronous."""
        return self.k == 1

    @property
    def expected(self) -> str:
        """See ExchangeSettings.expected."""
        return f"gradients in flight of k={self.k}"

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """See ExchangeSettings.needs_optimizer: weights are corrected, and learning rates changed."""
        if not self.compensates:
            return None
        return (
            f"A tape was given annealing_steps={self.annealing_steps} and correction={self.correction}.",
            "Use hvd.DistributedOptimizer of paceline.keras, which compensates for staleness, or leave both out.",
        )

    @property
    def delay(self) -> int:
        """tau: the age of gradients in updates when they are applied."""
        return self.k - 1

    @property
    def compensates(self) -> bool:
        """Whether something is done about that age."""
        return self.delay > 0 and (self.annealing_steps > 0 or self.correction > 0)


DECLARATION = Declaration(
    settings=Pipelined,
    short="pipelined (one step later, while the next ones are computed)",
    text="updates use gradients of k - 1 steps ago, which travel while later ones are computed",
    in_flight=lambda tag: f"those of k={tag}" if tag > 1 else "",
)
