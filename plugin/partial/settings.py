"""Settings of a partial exchange (eager-SGD): the ranks that a round waits for, and the results of late ranks.

Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020. A
round combines the send buffers of all ranks as soon as enough ranks have arrived. A late rank receives the rounds that
it missed, and its contribution enters the next round. No contribution is counted twice or lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paceline import option
from paceline.errors import UserError
from paceline.exchange.declaration import Declaration, ExchangeSettings, setting, sync_every, whole
from paceline.native.exchanges import PARTIAL
from paceline.variables import switched_on

SOLO, MAJORITY, RANDOM = "solo", "majority", "random"
QUORA = (SOLO, MAJORITY, RANDOM)
SUM, LATEST = "sum", "latest"
ALL, CONTRIBUTED = "all", "contributed"
MOST_LAG = 1 << 20
# Value of K in saved states.
PARTIAL_K = 0


@dataclass(frozen=True)
class Partial(ExchangeSettings):
    """Eager-SGD: rounds that do not wait for all ranks.

    Args:
        quorum: number of ranks that a round waits for, from 1 to the number of ranks; "solo": any one rank; "majority":
            at least half of the ranks; "random": one rank drawn for each round, the same on all ranks (the paper's
            majority: half of the ranks on average).
        missed: a late rank gets the "sum" of all results that it missed, or only the "latest", as in the paper, where
            replicas diverge.
        max_lag: staleness bound: wait for a rank that missed this many rounds in a row; 0: unbounded.
        sync_every: average the models over all ranks after this many updates, and after drains; 0 disables it.
        seed: seed of the draws of "random".
        mean: a round divides by the number of "all" ranks, or by the number or weight of what was "contributed". If the
            script sets weights, it always divides by the contributed weight.

    Raises:
        UserError: for other values.
    """

    tag: ClassVar[int] = PARTIAL_K
    ranks_meet: ClassVar[bool] = False
    reproducible: ClassVar[bool] = False
    states_differ: ClassVar[bool] = True  # send buffers are a rank's own

    quorum: int | str = setting(
        MAJORITY, agreed="quorum", number=lambda one, ranks: one.count(ranks), otherwise=lambda ranks: ranks
    )
    missed: str = setting(SUM, agreed="latest", number=lambda one, ranks: int(one.missed == LATEST))
    max_lag: int = setting(
        0, option="partial_max_lag", parse=option.count, kind="whole number", unit="rounds",
        meaning="staleness bound: wait for a rank that missed this many rounds in a row; 0: unbounded",
        agreed="max_lag",
    )  # fmt: skip
    sync_every: int = sync_every(0)
    seed: int = setting(0, agreed="seed")
    mean: str = setting(ALL, agreed="mean", number=lambda one, ranks: int(one.weighs))

    def __post_init__(self) -> None:
        self._require(
            (
                "quorum",
                whole(self.quorum, 1) or self.quorum in QUORA,
                "Use a number of ranks from 1 up, or one of these. " + option.nearest(str(self.quorum), list(QUORA)),
            ),
            ("missed", self.missed in (SUM, LATEST), f"Use {SUM!r} or {LATEST!r}."),
            ("mean", self.mean in (ALL, CONTRIBUTED), f"Use {ALL!r} or {CONTRIBUTED!r}."),
            *(
                (name, whole(getattr(self, name), 0, MOST_LAG), f"Use a whole number from 0 to {MOST_LAG}.")
                for name in ("max_lag", "sync_every", "seed")
            ),
        )

    @property
    def weighs(self) -> bool:  # type: ignore[override]
        """True if rounds divide by the contributed number or weight."""
        return self.mean == CONTRIBUTED

    def check_environment(self) -> None:
        """Raise UserError for autotuning, which expects every operation to be called by all ranks."""
        if switched_on("HOROVOD_AUTOTUNE"):
            raise UserError(
                f"HOROVOD_AUTOTUNE=1 and a partial exchange (quorum={self.quorum}) exclude each other: autotuning "
                "counts operations that all ranks call.",
                "Leave one of them out: horovodrun without --autotune, or PACELINE_EXCHANGE=sync.",
            )

    @property
    def needs_optimizer(self) -> tuple[str, str] | None:
        """Problem and remedy for tapes with `sync_every`, which counts updates."""
        if not self.sync_every:
            return None
        return (
            f"A tape was given sync_every={self.sync_every}; it does not know when the model is updated.",
            "Leave sync_every (PACELINE_SYNC_EVERY) out, and call hvd.average_variables("
            "model.trainable_variables) on all ranks after as many updates; or use hvd.DistributedOptimizer.",
        )

    def count(self, ranks: int) -> int:
        """Return the number of votes that make a round ready; 0: the vote of the drawn rank.

        Raises UserError for more votes than ranks.
        """
        if self.quorum == RANDOM:
            return 0
        if self.quorum == SOLO:
            return 1
        if self.quorum == MAJORITY:
            return (ranks + 1) // 2
        if int(self.quorum) > ranks:
            raise UserError(
                f"quorum={self.quorum} was asked for among {ranks} ranks.",
                f"Use a number from 1 to {ranks}, or 'majority'.",
            )
        return int(self.quorum)

    def registration(
        self, ranks: int, counted: bool = False, weighted: bool = False
    ) -> tuple[str, int, int, int, int, int, int]:
        """Return the exchange and settings with which operations are registered (bridge/partial/rounds.h).

        `counted`: the last element of an answer is the number of fresh contributions. `weighted`: the last element of a
        contribution is its weight, and rounds divide by the contributed weight. Raises UserError for a quorum that
        cannot be reached.
        """
        votes = self.count(ranks)
        # -1: at least half, because the number of ranks may change in a later world.
        quorum = -1 if self.quorum == MAJORITY else votes
        return (PARTIAL, quorum, self.seed, self.max_lag, int(self.missed == LATEST), int(counted), int(weighted))


DECLARATION = Declaration(
    names={MAJORITY: {"quorum": MAJORITY}, SOLO: {"quorum": SOLO}},
    settings=Partial,
    short="majority or solo (those of half of the ranks, or of one, without a wait for the others)",
    text="updates do not wait for ranks that are late",
    in_flight=lambda tag: "send buffers of a partial exchange" if tag == PARTIAL_K else "",
)
