"""What the local exchange is given (local SGD): how many updates ranks make alone, and what becomes of their averages.

Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019: every rank updates its own model with its own
gradients, and after H updates all models become their mean; 1/H of the messages. Douillard et al., "DiLoCo:
Distributed Low-Communication Training of Language Models", arXiv 2311.08105: what H updates have changed, averaged
over the ranks, is the gradient of an outer optimizer, SGD with (Nesterov) momentum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline.exchange.declaration import Declaration, ExchangeSettings, setting, sync_every, whole

LOCAL_TAG = -1


@dataclass(frozen=True)
class Local(ExchangeSettings):
    """Updates with this rank's own gradients; models are averaged now and then.

    `sync_every`: H, the updates of a rank between two averages. With x what all ranks had after the last average, m the
    mean of their models now and d = x - m, models become x - outer_lr * v, where v = outer_momentum * v + d; with
    `nesterov` x - outer_lr * (d + outer_momentum * v). Without outer momentum and with outer_lr 1 that is m.
    Raises UserError for other values than H >= 1, 0 <= outer_momentum < 1, outer_lr > 0.
    """

    tag: ClassVar[int] = LOCAL_TAG
    states_differ: ClassVar[bool] = True  # so do the models
    gradients_travel: ClassVar[bool] = False

    sync_every: int = sync_every(8)
    outer_momentum: float = setting(
        0.0, agreed="outer_momentum (in millionths)", number=lambda one, ranks: round(one.outer_momentum * 1e6)
    )
    outer_lr: float = setting(
        1.0, agreed="outer_lr (in millionths)", number=lambda one, ranks: round(one.outer_lr * 1e6)
    )
    nesterov: bool = setting(False, agreed="nesterov")

    def __post_init__(self) -> None:
        self._require(
            ("sync_every", whole(self.sync_every, 1), "Use a whole number, 1 or more."),
            ("outer_momentum", 0 <= self.outer_momentum < 1, "Use a number from 0 to below 1."),
            ("outer_lr", 0 < self.outer_lr < float("inf"), "Use a number above 0."),
        )

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """See ExchangeSettings.needs_optimizer: always."""
        return (
            'A tape was given exchange="local"; it does not know when the model is updated.',
            "Use a plain tf.GradientTape and call hvd.average_variables(model.trainable_variables) on all ranks after "
            "so many updates; or use hvd.DistributedOptimizer.",
        )

    @property
    def outer(self) -> bool:
        """Whether there is more to do than to take the mean."""
        return self.outer_momentum > 0 or self.outer_lr != 1


DECLARATION = Declaration(
    settings=Local,
    short="local (on their own rank alone, models being averaged after some updates)",
    text="updates use this rank's own gradients, and models are averaged after every so many",
    in_flight=lambda tag: "updates of a local exchange since its last average" if tag == LOCAL_TAG else "",
)
