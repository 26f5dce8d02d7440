"""What a partial exchange is given (eager-SGD): which ranks a round waits for, and what late ranks get.

Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020. A
round combines the send buffers of all ranks as soon as enough of them have come. A rank that is late is answered with
the rounds that it missed, and its contribution goes with the next round. Nothing is counted twice, nothing is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.config import nearest
from paceline.errors import UserError
from paceline.native.exchanges import PARTIAL

SOLO, MAJORITY, RANDOM = "solo", "majority", "random"
QUORA = (SOLO, MAJORITY, RANDOM)
SUM, LATEST = "sum", "latest"
MOST_LAG = 1 << 20
# What ranks that average their models compare before a drain.
UPDATES = "updates since the last drain, which must be equally many with sync_every,"


@dataclass(frozen=True)
class Partial:
    """Rounds that do not wait for all ranks.

    `quorum`: how many ranks a round waits for: a number from 1 to the number of ranks; "solo", any one; "majority", at
    least half of them; "random", one that is drawn for each round from `seed`, the same on all ranks (the paper's
    majority: half of the ranks on average). `missed`: a late rank gets the "sum" of all results it missed, or only the
    "latest" (the paper's way: replicas drift apart). `max_lag`: after so many rounds without a call of it a rank is
    waited for; 0: never. `sync_every`: average the models over all ranks after so many updates and drains; 0: never.
    Raises UserError for other values.
    """

    quorum: int | str = MAJORITY
    missed: str = SUM
    max_lag: int = 0
    sync_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        whole = isinstance(self.quorum, int) and not isinstance(self.quorum, bool)
        if not (whole and int(self.quorum) >= 1) and self.quorum not in QUORA:
            raise UserError(
                f"Partial(quorum={self.quorum!r}) cannot be used.",
                "Use a number of ranks from 1 up, or one of these. " + nearest(str(self.quorum), list(QUORA)),
            )
        if self.missed not in (SUM, LATEST):
            raise UserError(f"Partial(missed={self.missed!r}) cannot be used.", "Use 'sum' or 'latest'.")
        for name in ("max_lag", "sync_every", "seed"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= MOST_LAG:
                raise UserError(
                    f"Partial({name}={value!r}) cannot be used.", f"Use a whole number from 0 to {MOST_LAG}."
                )

    def count(self, ranks: int) -> int:
        """How many votes make a round ready; 0: that of the rank that is drawn. Raises UserError if it is too many."""
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

    def registration(self, ranks: int, counted: bool = False) -> tuple[str, int, int, int, int, int]:
        """What operations are registered with: the exchange and its settings (bridge/partial/rounds.h).

        `counted`: answers have the number of fresh contributions in the place of their last element. Raises UserError
        for a quorum that cannot be reached.
        """
        votes = self.count(ranks)
        # Of at least half: whatever the number of ranks will be in a world that comes after this one.
        quorum = -1 if self.quorum == MAJORITY else votes
        return (PARTIAL, quorum, self.seed, self.max_lag, int(self.missed == LATEST), int(counted))
