"""What users ask whether they have it: the types that paceline.tensorflow names, and hvd.Sync."""

from __future__ import annotations

from integration_tests.support.ranks import ranks

TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}


@ranks(2, env=TENSORFLOW, timeout_s=120)
def test_results_are_of_the_types_that_are_named(rank: int, size: int) -> None:
    import tensorflow as tf

    import paceline.tensorflow as hvd

    hvd.init()
    weight = tf.Variable([1.0, 2.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * (rank + 1.0))
    (gradient,) = hvd.DistributedGradientTape(tape, exchange=hvd.Sync(), name="types").gradient(loss, [weight])
    assert gradient.numpy().tolist() == [(size + 1) / 2] * 2
    report, stats = hvd.fusion_report(), hvd.exchange_stats()
    assert isinstance(report, hvd.FusionReport) and report.policy == "threshold"
    assert isinstance(stats, hvd.ExchangeStats) and stats.rounds == 0
    begun = hvd.partial_allreduce_async(tf.ones(3), "types.partial", quorum=size)
    assert isinstance(begun, hvd.PartialResult)
    mean, fresh = begun.wait()
    assert (mean.numpy().tolist(), int(fresh)) == ([1.0, 1.0, 1.0], size)
