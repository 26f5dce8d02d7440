"""What a step with an eager DistributedGradientTape takes, ours beside Horovod's.

    python -m integration_tests.tapes [--ranks 2] [--variables 20]     (a minute)

Prints milliseconds per step, synchronous exchange, and the ratio within turns; both run in the same processes, in short
turns, because the machine's speed drifts.
"""

from __future__ import annotations

import argparse
import statistics
import time

from rich.console import Console
from rich.table import Table

from integration_tests.support.ranks import World

STEPS = 20
TURNS = 15


def body(rank: int, size: int, count: int) -> list[tuple[float, float]]:
    """Milliseconds per step of Horovod's tape and of ours, per turn."""
    import horovod.tensorflow as stock
    import tensorflow as tf

    import paceline.tensorflow as ours

    stock.init()
    variables = [tf.Variable(tf.ones([7, n % 5 + 1])) for n in range(count)]

    def steps_ms(hvd: object) -> float:
        stock.allreduce(tf.zeros(1), name="tapes.start")
        start = time.perf_counter()
        for _ in range(STEPS):
            with tf.GradientTape() as tape:
                loss = tf.add_n([tf.reduce_sum(variable * variable) for variable in variables])
            tape = hvd.DistributedGradientTape(tape)  # type: ignore[attr-defined]
            gradients = tape.gradient(loss, variables)
            assert len(gradients) == count
        return 1e3 * (time.perf_counter() - start) / STEPS

    for hvd in (stock, ours):
        steps_ms(hvd)
    return [(steps_ms(stock), steps_ms(ours)) for _ in range(TURNS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--variables", type=int, default=20)
    arguments = parser.parse_args()
    world = World(arguments.ranks, {})
    try:
        results = world.run(__name__, "body", (arguments.variables,), 300.0)
    finally:
        world.end()
    table = Table("rank", "Horovod's, ms", "ours, ms", "ours / Horovod's")
    for rank, turns in enumerate(results):
        stock, ours = zip(*turns, strict=True)
        ratio = statistics.median(mine / theirs for theirs, mine in turns)
        table.add_row(str(rank), f"{statistics.median(stock):.1f}", f"{statistics.median(ours):.1f}", f"{ratio:.3f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    from integration_tests import tapes  # ranks import the body by its module's name, which __main__ is not

    raise SystemExit(tapes.main())
