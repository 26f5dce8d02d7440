"""Random events in a training of Keras on TensorFlow with compiled steps, compared with one process.

As in training_events.py, gradients depend on no weight: plain SGD adds them up, and a gradient that is lost, doubled or
given to another variable shows by its value. Steps are compiled, so Python sees none of them but the first. They go
through DistributedOptimizer or DistributedGradientTape.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from integration_tests.support import random_events

LARGEST = 4096.0  # of any gradient
_SIZES = (1, 7, 300, 5001)
_RATES = (2.0**-4, 2.0**-5, 2.0**-3)
# Of the largest gradient, for each set of variables trained so far: what rounding may take from sums.
LOST = {"none": 1e-9, "bf16": 2.0**-6, "q8": 0.1}
_TEXT = "of the script"


class Training:
    """Variables, their optimizer or tape, and what one process makes of the same gradients.

    All ranks draw the same choices from `same`; `own` is each rank's.
    """

    def __init__(self, rank: int, size: int, label: str, same: random.Random, own: random.Random) -> None:
        import tensorflow as tf

        import paceline.keras as hvd
        import paceline.tensorflow as hvd_tape

        self.tf, self.hvd, self.hvd_tape = tf, hvd, hvd_tape
        self.rank, self.size, self.label, self.same, self.own = rank, size, label, same, own
        self.tape = same.random() < 0.3
        exchanges: list[Any] = ["sync", hvd.Pipelined(k=2), hvd.Pipelined(k=3), "majority", "solo"]
        exchanges += [hvd.Pipelined(k=2, warmup_steps=3), hvd.Pipelined(k=3, warmup_steps=2)]
        if not self.tape:
            exchanges += [hvd.Pipelined(k=k, correction=0.1) for k in (2, 3)] + [hvd.Local(sync_every=3)]
        self.exchange = same.choice(exchanges)
        self.holds = self.exchange != "sync" and not isinstance(self.exchange, hvd.Local)
        self.codec = "none"
        if self.exchange == "sync" or isinstance(self.exchange, hvd.Pipelined):
            self.codec = same.choice(["none", "none", "bf16", "q8"])
        self.passes = 1 if self.tape else same.choice([1, 1, 2])
        self.options: dict[str, Any] = {"exchange": self.exchange, "codec": self.codec}
        self.options |= same.choice([{}, {"groups": 2}])
        dtype = np.float64 if self.codec == "none" else np.float32
        self.weights = [tf.Variable(np.zeros(same.choice(_SIZES), dtype)) for _ in range(4)]
        self.wanted = [np.zeros(weight.shape, np.float64) for weight in self.weights]
        self.rate, self.number, self.updates, self.wraps, self.sets = _RATES[0], 0, 0, 0, 0
        self._wrap()
        self._train_all(range(len(self.weights)))

    def __str__(self) -> str:
        way = "tape" if self.tape else f"optimizer, {self.passes} passes"
        return f"{self.label}: {way}, {self.options}, step {self.number}, trains {self.trained}"

    # --- the script -----------------------------------------------------------------------------------------------

    def _wrap(self) -> None:
        import keras

        self.optimizer = keras.optimizers.SGD(self.rate)
        self.wraps += 1
        if not self.tape:
            self.optimizer = self.hvd.DistributedOptimizer(
                self.optimizer, f"{self.label}.{self.wraps}", backward_passes_per_step=self.passes, **self.options
            )
        self.optimizer.build(self.weights)

    def _train_all(self, trained: Sequence[int]) -> None:
        """From here on a newly compiled step trains these, all other variables are frozen."""
        self.trained = list(trained)
        self.sets += 1
        self.step = self._compiled(self.trained)
        self.kept = [weight.numpy() for weight in self.weights]

    def _part(self, number: Any, index: int) -> Any:
        """The gradient of a variable on this rank: whole numbers, all different."""
        weight = self.weights[index]
        ramp = np.arange(weight.shape[0]) % 13 + 512 * (index % 3) + 1024 * self.rank
        return self.tf.constant(ramp, weight.dtype) + self.tf.cast(16 * (number % 29), weight.dtype)

    def _compiled(self, trained: Sequence[int]) -> Callable[[int, str], None]:
        tf, weights = self.tf, [self.weights[index] for index in trained]
        # A tape's exchange belongs to its name and variables.
        name, optimizer = f"{self.label}.{self.wraps}.{self.sets}", self.optimizer

        @tf.function(autograph=False)
        def step(number: Any, fails: Any) -> None:
            tf.debugging.assert_none_equal(fails, 1, message=_TEXT)
            with tf.GradientTape() as tape:
                parts = [self._part(number, index) for index in trained]
                loss = tf.add_n([tf.cast(tf.reduce_sum(w * part), tf.float64) for w, part in zip(weights, parts)])
            if self.tape:
                tf.debugging.assert_none_equal(fails, 2, message=_TEXT)
                tape = self.hvd_tape.DistributedGradientTape(tape, name=name, **self.options)
            grads = tape.gradient(loss, weights)
            if not self.tape:
                tf.debugging.assert_none_equal(fails, 2, message=_TEXT)
            optimizer.apply(grads, weights)

        self.lists = [(name, weights)]
        return lambda number, fails: step(tf.constant(number), tf.constant(("", "before", "between").index(fails)))

    def _pass(self, step: Callable[[int, str], None], trained: Sequence[int]) -> None:
        if self.own.random() < 0.1:
            time.sleep(0.01 * self.own.random())
        step(self.number, "")
        for index in trained:
            ramp = np.arange(self.weights[index].shape[0]) % 13 + 512 * (index % 3) + 16 * (self.number % 29)
            self.wanted[index] -= self.rate * (ramp + 512.0 * (self.size - 1))  # the mean of 1024 * rank
        self.number += 1

    def steps(self) -> None:
        for _ in range(self.same.randint(1, 5) * self.passes):
            self._pass(self.step, self.trained)
        self.updates += 1
        for index, (weight, kept) in enumerate(zip(self.weights, self.kept)):
            if index not in self.trained:
                np.testing.assert_array_equal(weight.numpy(), kept, err_msg=f"rank {self.rank}, {self}: frozen {index}")

    # --- events ---------------------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """A metric of the script's own, which is exact; with weights that are what the updates made of them."""
        metric = np.arange(300, dtype=np.float32) * 1.25
        tensor = self.tf.constant(metric + self.rank)
        found = self.hvd_tape.allreduce(tensor, op=self.hvd.Sum, name=f"{self.label}.metric").numpy()
        wanted = self.size * metric + self.size * (self.size - 1) / 2
        np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=f"rank {self.rank}, {self}: a metric")
        if not self.tape:
            with self.optimizer.real_weights():
                pass

    def _drain(self) -> None:
        if self.tape:
            for name, weights in self.lists:
                self.hvd_tape.drain_tape(self.optimizer, weights, name)
        else:
            self.optimizer.drain()

    def drain(self) -> None:
        """Nothing is in flight: weights are right on every rank."""
        self._drain()
        allowed = max(_RATES) * LARGEST * LOST[self.codec] * (1 if self.codec == "none" else self.size * self.sets)
        for index, (weight, wanted) in enumerate(zip(self.weights, self.wanted)):
            off = np.abs(weight.numpy().astype(np.float64) - wanted).max()
            assert off <= allowed, (
                f"rank {self.rank}, {self}, {index}: off by {off / self.rate * self.size:.6g} of summed gradients"
            )

    def freeze(self) -> None:
        """Freeze or thaw some; a newly compiled step."""
        self.drain()
        count = self.same.randint(1, len(self.weights))
        self._train_all(sorted(self.same.sample(range(len(self.weights)), count)))

    def rates(self) -> None:
        """Another learning rate, which compiled steps read."""
        self.drain()
        self.rate = self.same.choice(_RATES)
        self.optimizer.learning_rate.assign(self.rate)

    def fail(self) -> None:
        """A compiled step raises, on all ranks or on one, which continues with its next batch."""
        unlucky = self.same.choice([self.rank, self.same.randrange(self.size)])
        for _ in range(self.passes):
            for place in ("before", "between"):
                if self.same.random() < 0.7 and unlucky == self.rank:
                    self._fails(self.step, self.number + 7, place, _TEXT)
            self._pass(self.step, self.trained)
        self.updates += 1

    def _fails(self, step: Callable[[int, str], None], number: int, place: str, text: str) -> None:
        from paceline.errors import UserError

        try:
            step(number, place)
        except (self.tf.errors.InvalidArgumentError, UserError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"rank {self.rank}, {self}: a step did not raise: {text}")

    def resume(self) -> None:
        """As in a new process: state in flight is loaded into another optimizer, of other variables."""
        (name, weights), *_ = self.lists
        self._meet()
        taped = self.tape
        state = self.hvd_tape.tape_in_flight(name, variables=weights) if taped else self.optimizer.in_flight()
        self._meet()
        self.weights = [self.tf.Variable(weight) for weight in self.weights]
        self._wrap()
        if not self.tape:
            self.optimizer.load_in_flight(state)
        self._train_all(self.trained)
        if self.tape:
            self.hvd_tape.load_tape_in_flight(state, self.lists[0][0], variables=self.lists[0][1])

    def _meet(self) -> None:
        self.hvd.allgather_object(None, name=f"{self.label}.meet")

    def turns(self) -> None:
        """Two compiled steps of different variables, in turn, as of a GAN; with drains, or without them."""
        self.drain()
        whole = self.trained
        mine = sorted(self.same.sample(range(len(self.weights)), 2))
        halves = [mine, [index for index in range(len(self.weights)) if index not in mine]]
        self.sets += 1
        steps, lists = [], []
        for half in halves:
            steps.append(self._compiled(half))
            lists += self.lists
        self.lists = lists
        last = None
        for _ in range(self.same.randint(2, 5)):
            which = self.same.choice([0, 1])
            passes = self.passes
            if last not in (None, which) and self.holds and not self.tape:
                if self.same.random() < 0.5:
                    passes -= self._refused(steps[which], halves[which])
                self._drain()  # maybe in the middle of an accumulation
            for _ in range(passes):
                self._pass(steps[which], halves[which])
            self.updates += 1
            last = which
        self.drain()
        self._train_all(whole)

    def _refused(self, step: Callable[[int, str], None], trained: Sequence[int]) -> int:
        """The step has other gradients than those in flight; returns how many of its passes are done."""
        from paceline.errors import UserError

        done = 0
        try:
            for _ in range(self.passes):
                self._pass(step, trained)
                done += 1
        except (self.tf.errors.InvalidArgumentError, UserError) as error:
            text = str(error)
            assert self.label in text and "drain()" in text, text
            return done
        raise AssertionError(f"rank {self.rank}, {self}: a step of other variables than those in flight did not raise")


EVENTS = ("evaluate", "drain", "freeze", "rates", "fail", "resume", "turns")


def train(rank: int, size: int, seed: int, events: int = 5) -> int:
    """Two trainings in turn, each through random events; returns how many steps they made."""
    import paceline.keras as hvd

    hvd.init()
    trainings = random_events.run(
        lambda number, same, own: Training(rank, size, f"keras.{seed}.{number}", same, own),
        EVENTS, rank, size, seed, events,
    )  # fmt: skip
    return sum(training.number for training in trainings)
