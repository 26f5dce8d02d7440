"""Settings of the local exchange (local SGD): updates that ranks make alone, and averages of their models.

Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019: every rank updates its own model with its own
gradients, and after H updates all models become their mean; 1/H of the messages. Douillard et al., "DiLoCo:
Distributed Low-Communication Training of Language Models", arXiv 2311.08105: what H updates have changed, averaged
over the ranks, is the gradient of an outer optimizer, SGD with (Nesterov) momentum. Fragments, delay and mixing:
Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512. Averages of moments: "DES-LOC:
Desynced Low Communication Adaptive Optimizers for Training Foundation Models", ICLR 2026.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paceline.exchange.declaration import Declaration, ExchangeSettings, setting, sync_every, whole

LOCAL_TAG = -1


def _millionths(name: str) -> dict[str, Any]:
    return {"agreed": f"{name} (in millionths)", "number": lambda one, ranks: round(getattr(one, name) * 1e6)}


@dataclass(frozen=True)
class Local(ExchangeSettings):
    """Updates with this rank's own gradients; models are averaged now and then.

    `sync_every`: H, the updates of a rank between two averages of a weight. With x what all ranks had after the last
    average, m the mean of their weights now and d = x - m, x becomes x - outer_lr * v, where v = outer_momentum * v +
    d; with `nesterov` x - outer_lr * (d + outer_momentum * v). Without outer momentum and with outer_lr 1 that is m.

    `fragments`: n parts of the model that are averaged in turn, each every H updates, one every H / n. `delay`: updates
    of a rank between the start of a message and the use of its mean, less than H / n (PyTorch). `mixing`: share a of a
    rank's own weights in what it goes on with, (1 - a) x + a w. `moments_every`: updates between two averages of the
    moments of the optimizer, such as those of Adam; 0: never. `inside`: a process set with this rank, such as the ranks
    of a site, over which gradients are averaged in every update; models are averaged over all ranks.

    Raises UserError for other values than H >= 1, 0 <= outer_momentum < 1, outer_lr > 0, 1 <= n <= H, 0 <= delay < H /
    n, 0 <= mixing <= 1, moments_every >= 0.
    """

    tag: ClassVar[int] = LOCAL_TAG
    states_differ: ClassVar[bool] = True
    averages_models: ClassVar[bool] = True

    sync_every: int = sync_every(8)
    outer_momentum: float = setting(0.0, **_millionths("outer_momentum"))
    outer_lr: float = setting(1.0, **_millionths("outer_lr"))
    nesterov: bool = setting(False, agreed="nesterov")
    fragments: int = setting(1, agreed="fragments", otherwise=lambda ranks: 1)
    delay: int = setting(0, agreed="delay")
    mixing: float = setting(0.0, **_millionths("mixing"))
    moments_every: int = setting(0, agreed="moments_every")
    inside: Any = setting(None, agreed="inside= given", number=lambda one, ranks: int(one.inside is not None))

    def __post_init__(self) -> None:
        self._require(
            ("sync_every", whole(self.sync_every, 1), "Use a whole number, 1 or more."),
            ("outer_momentum", 0 <= self.outer_momentum < 1, "Use a number from 0 to below 1."),
            ("outer_lr", 0 < self.outer_lr < float("inf"), "Use a number above 0."),
            ("fragments", whole(self.fragments, 1, self.sync_every), "Use a whole number from 1 to sync_every."),
        )
        most = self.sync_every // self.fragments - 1
        self._require(
            ("delay", whole(self.delay, 0, most), f"Use a whole number from 0 to {most}: less than H / n."),
            ("mixing", 0 <= self.mixing <= 1, "Use a number from 0 to 1."),
            ("moments_every", whole(self.moments_every, 0), "Use a whole number, 0 or more."),
        )

    @property
    def gradients_travel(self) -> bool:  # type: ignore[override]
        """True if gradients are averaged over the ranks of a site."""
        return self.inside is not None

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
        """True if there is more to do than to take the mean."""
        return self.outer_momentum > 0 or self.outer_lr != 1

    @property
    def parts_ways(self) -> bool:
        """True if models differ right after an average, too."""
        return self.fragments > 1 or self.mixing > 0


DECLARATION = Declaration(
    settings=Local,
    short="local (on their own rank alone, models being averaged after some updates)",
    text="updates use this rank's own gradients, and models are averaged after every so many",
    in_flight=lambda tag: "updates of a local exchange since its last average" if tag == LOCAL_TAG else "",
)
