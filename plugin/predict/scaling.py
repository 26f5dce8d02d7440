"""Predicted steps of a recorded training by the number of workers, at equal work of each worker (weak scaling).

Costs of messages follow from alpha, beta and gamma of the network:

  stock, partial exchanges   Horovod's ring, 2 (p - 1) alpha + (p - 1) / p (2 beta + gamma) n
  other settings             the fastest of Paceline's collectives for each size (collective_time.h in the core)

One coordination round grows with the number of workers as coordination.py has it. Computation and readiness of
gradients stay as recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.collectives.bounds import ALLREDUCE, bus_factor
from paceline.core import _core
from paceline.core._core import CostModel
from paceline.errors import UserError
from paceline.fusion import costs as cost_models
from paceline.fusion.from_trace import Measurements
from paceline.local.settings import Local
from paceline.partial.settings import MAJORITY, SOLO, Partial
from paceline.predict import stragglers
from paceline.predict.advice import CYCLE_S, THRESHOLD_BYTES, StepModel
from paceline.predict.coordination import round_s
from paceline.predict.iteration import Iteration, communication_s, pipelined_s
from paceline.predict.lateness import Lateness
from paceline.predict.recorded import RecordedIteration
from paceline.predict.remedies import half_of, local_s, split_s
from paceline.registry.policies import OPTIMAL, THRESHOLD

RING = "ring"
# Processor time of a message, in which no other can leave: as fitted in docs/measurements/coordination.md (`armed`).
MESSAGE_S = 26e-6
# Sizes of the curve of Paceline's collectives: powers of this factor.
FACTOR = 2.0
# Names of settings; docs/guides/planning.md has their options.
STOCK, NEGOTIATED, ARMED, PIPELINED, SPLIT, LOCAL = (
    "stock", "optimal, not armed", "optimal", "pipelined", "split", "local",
)  # fmt: skip


@dataclass(frozen=True)
class Network:
    """Constants of the network between workers; `algorithm`: theory for all messages, or None (see the module)."""

    alpha_s: float
    beta_s_per_byte: float
    gamma_s_per_byte: float = 0.0
    algorithm: str | None = None

    def stock(self, workers: int) -> CostModel:
        """Return the cost of a message of Horovod, without coordination."""
        return cost_models.of_algorithm(
            self.algorithm or RING, workers, self.alpha_s, self.beta_s_per_byte, self.gamma_s_per_byte
        )

    def own(self, workers: int, most_bytes: float) -> CostModel:
        """Return the cost of a message of up to `most_bytes` by the fastest of Paceline's collectives."""
        if self.algorithm is not None or workers == 1:
            return self.stock(workers)
        sizes = [4.0]
        while sizes[-1] < most_bytes:
            sizes.append(sizes[-1] * FACTOR)
        message_s = min(self.alpha_s, MESSAGE_S)
        constants = (self.alpha_s, message_s, self.beta_s_per_byte, self.gamma_s_per_byte)
        return cost_models.fit(
            [(size, _core.fastest_allreduce(workers, size, *constants)[1]) for size in sizes], measured=True
        )


def of_ring(costs: CostModel, ranks: int) -> Network:
    """Return the network in which a ring among `ranks` ranks costs this; gamma is part of beta.

    Raises UserError for one rank, which sends nothing.
    """
    if ranks < 2:
        raise UserError(
            f"A message among {ranks} rank has no cost from which more workers could be predicted.",
            "Give --ranks: the number of ranks among which a message costs that; or --alpha and --beta.",
        )
    return Network(costs.a_s / (2 * (ranks - 1)), costs.b_s_per_byte * ranks / (2 * (ranks - 1)))


@dataclass(frozen=True)
class Setting:
    """A setting among a number of workers.

    Attributes:
        name: one of the names above, or a quorum of the partial exchange.
        step_s: seconds per step.
        alone_s: step of workers that exchange nothing, with their own lateness: of the mean of their steps per second.
        sent_bytes: bytes that a worker sends per step, by a ring: the least of all collectives.
    """

    name: str
    step_s: float
    alone_s: float
    sent_bytes: float

    @property
    def exposed_s(self) -> float:
        """Time that a worker waits for messages and for other workers."""
        return max(0.0, self.step_s - self.alone_s)

    @property
    def scaling(self) -> float:
        """Throughput over that of as many workers that exchange nothing."""
        return self.alone_s / self.step_s if self.step_s > 0 else 1.0


@dataclass(frozen=True)
class Scaled:
    """All settings among `workers` workers, Horovod's own first."""

    workers: int
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Scaling:
    """A recorded training whose steps are predicted for other numbers of workers.

    Attributes:
        recorded: iteration of the trace.
        measured: measurements of the trace.
        network: constants of the network.
        coordination_s: coordination round among `ranks` ranks; None if it is not known.
        ranks: number of ranks of that round.
        split: the framework has the split exchange.
        lateness: lateness of workers, or None.
        cycle_s: Horovod's cycle time.
        threshold_bytes: Horovod's fusion threshold.
    """

    recorded: RecordedIteration
    measured: Measurements
    network: Network
    coordination_s: float | None
    ranks: int
    split: bool = True
    lateness: Lateness | None = None
    cycle_s: float = CYCLE_S
    threshold_bytes: int = THRESHOLD_BYTES

    def at(self, workers: int) -> Scaled:
        """Predict all settings among `workers` workers. Raises UserError for fewer than one."""
        if workers < 1:
            raise UserError(f"There cannot be {workers} workers.", "Give numbers of workers from 1.")
        model = self._model(workers)
        exposed_s = self._exposed_s(model)
        moved_bytes = bus_factor(ALLREDUCE, workers) * sum(one.bytes for one in self.measured.gradients)
        every = Local().sync_every
        sent_bytes = {name: moved_bytes / (every if name == LOCAL else 1) for name in exposed_s}
        if self.lateness is None:
            compute_s = model.recorded.iteration.compute_s
            found = {name: (compute_s + more_s, compute_s) for name, more_s in exposed_s.items()}
        else:
            found = self._late(model, exposed_s, workers)
            sent_bytes |= {name: moved_bytes for name in found if name not in sent_bytes}
        return Scaled(workers, tuple(Setting(name, *times, sent_bytes[name]) for name, times in found.items()))

    def over(self, workers: Sequence[int]) -> list[Scaled]:
        """Predict all settings for each number of workers."""
        return [self.at(count) for count in workers]

    def _model(self, workers: int) -> StepModel:
        network = self.network
        stock = network.stock(workers)
        own = network.own(workers, sum(one.bytes for one in self.measured.gradients))
        coordination_s = round_s(workers, network.alpha_s, self.coordination_s, self.ranks)
        iteration = replace(self.recorded.iteration, costs=stock.plus(coordination_s))
        return StepModel(
            replace(self.recorded, iteration=iteration),
            replace(self.measured, ranks=workers),
            stock,
            own,
            coordination_s,
            # As in advice.py: a round with events has as many hops as a small message.
            min(coordination_s, own(0)),
            work_s=0.0,
            late_s=0.0,
            busy_s=0.0,
            replayed_s=0.0,
            split=self.split,
            cycle_s=self.cycle_s,
            threshold_bytes=self.threshold_bytes,
        )

    def _exposed_s(self, model: StepModel) -> dict[str, float]:
        """Return the exposed communication of each setting without late workers."""
        iteration, ranks = model.recorded.iteration, model.measured.ranks
        own = self._with_own(model)
        stock_s = model.finish_of(model.stock, False)[THRESHOLD]
        steps_s = {
            STOCK: iteration.step_s(stock_s),
            NEGOTIATED: iteration.step_s(model.finish_of(model.own, False)[OPTIMAL]),
            ARMED: iteration.step_s(model.finish_of(model.own, True)[OPTIMAL]),
            PIPELINED: pipelined_s(own),
            LOCAL: local_s(own, Local().sync_every),
        }
        if self.split:
            steps_s[SPLIT] = split_s(iteration, half_of(model.own), model.events_s, ranks)
        # A single worker sends nothing, though Horovod would wait for its cycle.
        return {name: step_s - iteration.compute_s if ranks > 1 else 0.0 for name, step_s in steps_s.items()}

    def _with_own(self, model: StepModel) -> Iteration:
        """Return the iteration with messages by Paceline's collectives, and rounds that begin with events."""
        return replace(model.recorded.iteration, costs=model.own.plus(model.events_s))

    def _late(self, model: StepModel, exposed_s: dict[str, float], workers: int) -> dict[str, tuple[float, float]]:
        """Return the steps of each setting, and the partial exchanges', with late workers, and the step alone."""
        assert self.lateness is not None
        own = self._with_own(model)
        compute_s, message_s = own.compute_s, communication_s(own)
        late_s = self.lateness.seconds(workers, compute_s)
        every = Local().sync_every
        found: dict[str, stragglers.Simulated] = {}
        for name, more_s in exposed_s.items():
            if name == PIPELINED:
                found[name] = stragglers.pipelined(late_s, compute_s, message_s)
            elif name == LOCAL:
                found[name] = stragglers.local(late_s, compute_s, message_s, every)
            else:
                found[name] = stragglers.synchronous(late_s, compute_s, more_s)
        for quorum in (MAJORITY, SOLO):
            settings = Partial(quorum)
            found[quorum] = stragglers.partial(late_s, compute_s, exposed_s[STOCK], settings)
        alone_s = 1 / float((1 / stragglers.computing(late_s, compute_s).mean(axis=0)).mean())
        return {name: (one.step_s, alone_s) for name, one in found.items()}
