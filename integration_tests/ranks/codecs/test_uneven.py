"""Error feedback loses nothing when gradients come at uneven times, on each rank and for each tensor."""

from __future__ import annotations

from integration_tests.support.exact_training import WITH_CODEC, train
from integration_tests.support.ranks import ranks

REPEATS = 12


@ranks(2, more=(3,))
def test_gradients_that_come_again_before_others_have_ended(rank: int, size: int) -> None:
    import paceline.torch as hvd

    hvd.init()
    for exchange in WITH_CODEC:
        for repeat in range(REPEATS):
            train(rank, size, exchange, "q8", "cpu", f"uneven.{repeat}", uneven_s=0.004)
