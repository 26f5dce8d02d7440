"""Settings of the local exchange (local SGD): updates that ranks make alone, and averages of their models.

Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019: every rank updates its own model with its own
gradients, and after H updates all models become their mean; 1/H of the messages. Douillard et al., "DiLoCo:
Distributed Low-Communication Training of Language Models", arXiv 2311.08105: the change of the weights in H updates,
averaged over the ranks, is the gradient of an outer optimizer, SGD with (Nesterov) momentum. Fragments, delay and
mixing: Douillard et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512. Averages of moments:
"DES-LOC: Desynced Low Communication Adaptive Optimizers for Training Foundation Models", ICLR 2026.
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
    """Local SGD: each rank updates its model with its own gradients, and models are averaged periodically.

    Let x be the weights of all ranks after the last average, m the mean of their current weights, and d = x - m. An
    average sets v = outer_momentum * v + d, and x to x - outer_lr * v, or with `nesterov` to
    x - outer_lr * (d + outer_momentum * v). With outer_momentum=0 and outer_lr=1, x becomes m.

    Args:
        sync_every: H, updates of a rank between two averages of a weight; H >= 1.
        outer_momentum: momentum of the outer optimizer, at least 0 and below 1.
        outer_lr: learning rate of the outer optimizer, above 0.
        nesterov: Nesterov momentum.
        fragments: n parts of the model that are averaged in turn, one every H / n updates; 1 <= n <= H.
        delay: updates of a rank between the start of a message and the use of its mean, 0 <= delay < H / n (PyTorch).
        mixing: share a of a rank's own weights w after an average, (1 - a) x + a w; 0 <= a <= 1.
        moments_every: updates between two averages of the optimizer's moments, such as Adam's; 0 disables them.
        inside: a process set with this rank, such as the ranks of a site. Gradients are averaged over it in every
            update; models are averaged over all ranks.

    Raises:
        UserError: for values outside these ranges.
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
    def exchanges_gradients(self) -> bool:  # type: ignore[override]
        """True if gradients are averaged over the ranks of a site."""
        return self.inside is not None

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """Problem and remedy for tapes, which never can use this exchange."""
        return (
            'A tape was given exchange="local"; it does not know when the model is updated.',
            "Use a plain tf.GradientTape and call hvd.average_variables(model.trainable_variables) on all ranks after "
            "so many updates; or use hvd.DistributedOptimizer.",
        )

    @property
    def outer(self) -> bool:
        """True if the outer optimizer does more than take the mean."""
        return self.outer_momentum > 0 or self.outer_lr != 1

    @property
    def parts_ways(self) -> bool:
        """True if models differ even right after an average."""
        return self.fragments > 1 or self.mixing > 0


DECLARATION = Declaration(
    settings=Local,
    short="local (those of this rank; models are averaged after some updates)",
    text="updates use this rank's own gradients, and models are averaged after every so many",
    in_flight=lambda tag: "updates of a local exchange since its last average" if tag == LOCAL_TAG else "",
)
