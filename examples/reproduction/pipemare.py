"""PipeMare: Yang et al., MLSys 2021 (arXiv 1910.05124); schedules, delays and corrections of paceline.stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean

from paceline.examples.reproduction.measured import Cell, Ratio
from paceline.examples.reproduction.rows import Mark, Missed, Paper, Row
from paceline.examples.reproduction.stability import first_unstable, of_delay, of_discrepancy
from paceline.stages import schedules, stability
from paceline.stages.corrections import delta_decay, learning_rate_factor
from paceline.stages.costs import costs
from paceline.stages.delays import delays
from paceline.stages.schedule import Schedule
from paceline.stages.schedules.pipedream import PipeDream
from paceline.stages.schedules.pipemare import PipeMare
from paceline.stages.simulate import simulate, steady_steps

# Largest alpha lambda of Lemma 1, by tau.
BOUNDS = {0: 2.0, 1: 1.0, 2: 0.618034, 5: 0.284630, 10: 0.149460, 20: 0.076605, 50: 0.031104, 107: 0.014612}
ROOTS = (1, 2, 5, 10, 20)  # taus whose polynomials are solved, too
BEST = "best"  # gamma = 1 - 2 / (tau_forward - tau_backward + 1)
# (tau_forward, tau_backward, Delta, T2's D, `BEST` or None without correction) -> first unstable alpha; lambda = 1.
DISCREPANCIES: dict[tuple[int, int, int, float | str | None], float] = {
    (10, 0, 1, None): 0.0594,
    (10, 0, 1, BEST): 0.1314,
    (10, 0, 5, None): 0.0176,
    (10, 0, 5, BEST): 0.0979,
    (10, 0, 5, 0.1): 0.1194,
    (10, 0, 5, 0.5): 0.0291,
    (10, 0, 10, None): 0.0094,
    (10, 0, 10, BEST): 0.0796,
    (20, 0, 5, None): 0.0089,
    (20, 0, 5, BEST): 0.0491,
    (10, 6, 5, None): 0.0381,
    (10, 6, 5, BEST): 0.1051,
}
STAGES_107 = 107
ONE_PASS = (
    "A stage of the paper's hardware does a forward and a backward pass in each slot, and is 2 (P - i) + 1 "
    "micro-batches ahead. With one pass at a time P - i are enough, so Paceline's gradients are fresher."
)


def slots_ahead(stages: int, stage: int) -> int:
    """Return 2(P-i)+1 for i = stage + 1: as PipeMare's paper counts, a forward and a backward pass in each slot."""
    return 2 * (stages - (stage + 1)) + 1


class PapersPipeMare(PipeMare):
    """PipeMare on the paper's hardware."""

    def ahead(self, stage: int) -> int:
        """Return the lead in slots."""
        return slots_ahead(self.stages, stage)


class PapersPipeDream(PipeDream):
    """PipeDream on the hardware of PipeMare's paper."""

    def ahead(self, stage: int) -> int:
        """Return the lead in slots."""
        return slots_ahead(self.stages, stage)


def gamma(forward: int, backward: int, correction: float | str | None) -> float | None:
    """Return T2's gamma of a key of DISCREPANCIES."""
    if correction is None:
        return None
    if isinstance(correction, str):
        return 1 - 2 / (forward - backward + 1)
    return delta_decay(correction, forward, backward)


def first_unstable_rate(forward: int, backward: int, delta: int, correction: float | str | None) -> float:
    """Return the first unstable learning rate of a key of DISCREPANCIES."""
    decay = gamma(forward, backward, correction)
    return first_unstable(lambda rate: of_discrepancy(forward, backward, rate, 1.0, delta, decay))


def _unstable_rates(keys: Sequence[tuple[int, int, int, float | str | None]]) -> list[float]:
    return [first_unstable_rate(*key) for key in keys]


def utilisation_of(schedule: str) -> Cell:
    """Return the measured utilisation of four stages that sleep."""
    return Cell("benchmarks.md", "stages-late", (schedule,), "utilisation")


def _taus(schedule: Schedule, backward: bool = False) -> list[float]:
    return [taus[backward] for taus in delays(schedule)]


def utilisation(name: str, stages: int, microbatches: int) -> float:
    """Return the simulated utilisation of a schedule in a steady state."""
    schedule = schedules.make(name, stages, microbatches)
    return min(simulate(schedule, steady_steps(schedule)).steady_utilisation())


def _over_gpipe(stages: int, microbatches: int) -> float:
    """Return the utilisation of PipeMare over GPipe's."""
    pipemare, gpipe = (costs(schedules.make(name, stages, microbatches)) for name in ("pipemare", "gpipe"))
    return pipemare.utilisation / gpipe.utilisation


def _copies(stages: int, microbatches: int) -> float:
    """Return the mean number of older versions that PipeDream keeps beside the newest."""
    return fmean(costs(PapersPipeDream(stages, microbatches)).weight_copies) - 1


def _with_delta(moments: int) -> float:
    """Return weights, gradient, moments and T2's buffer, over the memory without that buffer."""
    weights = max(costs(schedules.make("pipemare", 4, 4)).weight_copies)
    return (weights + 1 + moments + 1) / (weights + 1 + moments)


def _own(name: str, missed: Missed | None, note: str) -> Row:
    return Row(
        f"tau forward of Paceline's `{name}`, P = 4, N = 4",
        Mark.MEM_H,
        "Table 1",
        (1.75, 1.25, 0.75, 0.25),
        lambda: _taus(schedules.make(name, 4, 4)),
        missed=missed,
        note=note,
    )


ROWS = (
    *(
        Row(
            f"tau forward of PipeMare, P = 4, N = {microbatches}",
            Mark.MEM_H,
            "Table 1",
            taus,
            partial(_taus, PapersPipeMare(4, microbatches)),
            within=1e-9,
            note="Counted in a schedule with the paper's lead of 2 (P - i) + 1." if microbatches == 4 else "",
        )
        for microbatches, taus in ((4, (1.75, 1.25, 0.75, 0.25)), (8, (0.875, 0.625, 0.375, 0.125)))
    ),
    Row(
        "tau backward of PipeDream, P = 4, N = 4",
        Mark.MEM_H,
        "Table 1",
        (1.75, 1.25, 0.75, 0.25),
        lambda: _taus(PapersPipeDream(4, 4), backward=True),
        within=1e-9,
    ),
    Row(
        "tau backward of PipeMare, P = 4, N = 4",
        Mark.MEM_H,
        "Table 1",
        (0.0,) * 4,
        lambda: _taus(PapersPipeMare(4, 4), backward=True),
        within=0.0,
    ),
    _own("pipemare", Missed.EXPLAINED, ONE_PASS),
    _own("pipemare_eager", Missed.EXPLAINED, "2 (P - i) / N: the paper's delays without the 1/N of a double slot."),
    Row(
        "throughput of GPipe, P = 4, N = 4, 8: N / (N + P - 1)",
        Mark.MEM_H,
        "Table 1",
        (0.571, 0.727),
        lambda: [utilisation("gpipe", 4, microbatches) for microbatches in (4, 8)],
        within=0.0,
        printed=5e-4,
        note="Measured with N = 4.",
        measured=utilisation_of("gpipe"),
    ),
    Row(
        "throughput of PipeMare, P = 4, N = 4",
        Mark.MEM_H,
        "Table 1",
        1.0,
        lambda: utilisation("pipemare", 4, 4),
        within=1e-9,
        measured=utilisation_of("pipemare"),
    ),
    Row(
        "PipeMare over GPipe, P = 4, N = 4",
        Mark.MEM_H,
        "Table 1",
        1.75,
        lambda: _over_gpipe(4, 4),
        within=1e-9,
        measured=Ratio(utilisation_of("pipemare"), utilisation_of("gpipe")),
    ),
    Row(
        "utilisation over GPipe's, up to: P = 107, N = 8",
        Mark.WEB,
        "abstract (MLSys)",
        14.3,
        lambda: _over_gpipe(STAGES_107, 8),
        within=0.005,
        fitted=True,
        note="P = 107 for ResNet-50, as we understand the paper. The abstract does not give N; we chose the power of "
        "two that fits. The two versions of the paper give different factors.",
    ),
    Row(
        "utilisation over GPipe's, up to: P = 107, N = 32",
        Mark.WEB,
        "abstract (arXiv)",
        4.3,
        lambda: _over_gpipe(STAGES_107, 32),
        within=0.005,
        fitted=True,
        note="As the row above.",
    ),
    Row(
        "older weights of PipeDream: W P / N, P = 107, N = 8",
        Mark.MEM_H,
        "Table 1",
        13.375,
        lambda: fmean(_taus(PapersPipeDream(STAGES_107, 8))),
        within=1e-3,
        unit="W",
        note="Mean of tau over the stages.",
    ),
    Row(
        "the same in whole versions",
        Mark.MEM_H,
        "Table 1",
        13.375,
        lambda: _copies(STAGES_107, 8),
        within=0.05,
        unit="W",
        note="A stage keeps whole versions, the next number above tau; the formula counts fractions.",
    ),
    Row(
        "memory with T2's buffer, SGD with momentum and Adam",
        Mark.MEM_M,
        "section on T2",
        (1.33, 1.25),
        lambda: [_with_delta(1), _with_delta(2)],
        within=0.0,
        printed=0.005,
        note="As we understand the paper.",
    ),
    Row(
        "T1: learning rate 0.1 at tau = 8, K = 100, update 0, 50, 100",
        Mark.MEM_H,
        "T1",
        (0.0125, 0.035355, 0.1),
        lambda: [0.1 * learning_rate_factor(8.0, update, 100) for update in (0, 50, 100)],
        within=1e-4,
    ),
    Row(
        "T2: gamma = D^(1/tau), tau = 10, D = 0.135, 0.5, 0.1",
        Mark.MEM_H,
        "T2",
        (0.8185, 0.9330, 0.7943),
        lambda: [delta_decay(correction, 10.0, 0.0) for correction in (0.135, 0.5, 0.1)],
        within=1e-4,
    ),
    Row(
        f"Lemma 1: alpha lambda, tau = {', '.join(map(str, BOUNDS))}",
        Mark.MEM_H,
        "Lemma 1",
        tuple(BOUNDS.values()),
        lambda: [stability.bound(tau) for tau in BOUNDS],
        within=1e-4,
    ),
    Row(
        f"the same by the roots of its polynomial, tau = {', '.join(map(str, ROOTS))}",
        Mark.MEM_H,
        "Lemma 1",
        tuple(BOUNDS[tau] for tau in ROOTS),
        lambda: [first_unstable(partial(of_delay, tau)) for tau in ROOTS],
        within=1e-4,
    ),
    Row(
        "Lemma 3: first unstable alpha lambda at tau = 10, momentum 0.1, 0.5, 0.9",
        Mark.CALC,
        "Lemma 3",
        (0.1334, 0.0699, 0.0116),
        lambda: [first_unstable(partial(of_delay, 10, momentum=beta)) for beta in (0.1, 0.5, 0.9)],
        within=0.02,
        note="Expected values were found on a grid of rates, up to 2 % above the root.",
    ),
    *(
        Row(
            f"first unstable alpha {name} T2: (tau forward, tau backward, Delta) = "
            + ", ".join(f"({forward}, {backward}, {delta})" for forward, backward, delta, _ in keys),
            Mark.CALC,
            "Lemma 2, T2",
            tuple(DISCREPANCIES[key] for key in keys),
            partial(_unstable_rates, keys),
            within=0.015,
            note="Expected values were found on a grid of rates." if name == "without" else note,
        )
        for name, keys, note in (
            ("without", [key for key in DISCREPANCIES if key[3] is None], ""),
            (
                "with",
                [key for key in DISCREPANCIES if key[3] == BEST],
                "gamma = 1 - 2 / (tau forward - tau backward + 1).",
            ),
            ("with", [key for key in DISCREPANCIES if isinstance(key[3], float)], "D = 0.1, then D = 0.5."),
        )
    ),
)

PAPER = Paper(
    "PipeMare",
    "Yang et al., *PipeMare: Asynchronous Pipeline Parallel DNN Training*, MLSys 2021, arXiv 1910.05124",
    "We had two abstracts and code of others for T1. Tables and lemmas are as we remember them.",
    "stages.md",
    ROWS,
    (
        ("up to 2.7 times less memory", "the number of micro-batches of that comparison was not available"),
        ("accuracies and BLEU of ResNets and Transformers", "the text was not available, nor a cluster for it"),
        ("delays with recomputed activations", "the text was not available"),
        ("the need for T1", "our [training](stages.md#what-late-gradients-cost-in-training) is as good without"),
    ),
)
