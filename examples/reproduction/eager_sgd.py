"""Eager-SGD: Li et al., PPoPP 2020 (arXiv 1908.04207): quorums of paceline.partial, waits by paceline.predict."""

from __future__ import annotations

from functools import partial
from statistics import fmean, pstdev

from paceline.examples.benchmarks.skew.model import (
    SYNC,
    expected_fresh,
    expected_wait,
    fresh_counts,
    with_transfer,
)
from paceline.examples.reproduction.late_ranks import in_turn_lost_s, lost_s, rotating
from paceline.examples.reproduction.measured import Cell
from paceline.examples.reproduction.rows import Mark, Missed, Paper, Row
from paceline.partial.settings import RANDOM, SOLO

# Section 7.1: 32 processes, rank r sleeps r ms; milliseconds for 64 B, 512 B, 4 KB, 32 KB, 256 KB, 4 MB.
RANKS, SKEW_MS = 32, 1.0
FULL_MS = (15.47, 15.60, 15.82, 16.23, 16.99, 22.34)
MAJORITY_MS = (5.26, 5.95, 6.05, 6.79, 7.78, 11.07)
SOLO_MS = (0.25, 0.25, 0.25, 0.27, 0.28, 1.54)
LARGER = "512 B, 4 KB, 32 KB, 256 KB, 4 MB"
# Section 7: one of 8 ranks is late by 200, 300, 400 ms; synchronous steps per second.
HYPERPLANE_S, HYPERPLANE_SYNC = (0.2, 0.3, 0.4), (1.64, 1.41, 1.23)
# Section 7: 4 of 64 ranks are late by 300, 460 ms; steps per second of Deep500 and Horovod.
IMAGENET_S = (0.3, 0.46)
IMAGENET_SYNC = {"Deep500": (1.00, 0.93), "Horovod": (1.10, 0.94)}
# Section 7: delays of 50 to 400 ms rotate over 8 ranks; 190 epochs of 50,000 images in batches of 512.
CIFAR_SYNC_S, CIFAR_STEPS, CIFAR_DELAY_S = 11128.0, 190 * 50_000 / 512, 0.05

OWN = ("benchmarks.md", "late-ranks")
SLEEPS = (
    "Our model gives a late rank the time of its own sleep, once in as many steps as there are ranks. The paper's rate "
    "of 2.46 steps per second, the same for all delays, does not show it. Our own training does: see the next row."
)
# Our training: steps of 200 ms on 8 ranks, one of them late by 200 ms.
DIGITS_S = (0.2,)


def digits(exchange: str, column: str) -> Cell:
    """Return a measurement of that training."""
    return Cell("partial.md", "Measured", (exchange,), column)


FEW_MS = "The model has waits for other ranks only. The paper's value is the time of activation and of the message."


def transfers_ms() -> list[float]:
    """Return the time of the all-reduce at each size: what the full collective takes in addition to its wait."""
    return [full - SKEW_MS * expected_wait(SYNC, RANKS) for full in FULL_MS]


def _latency_ms(system: str) -> list[float]:
    counts = fresh_counts(system, RANKS)
    return [time_ms + with_transfer(counts, RANKS, time_ms) for time_ms in transfers_ms()]


def _closed_ms(system: str) -> float:
    return SKEW_MS * expected_wait(system, RANKS)


def _mean_reduction() -> float:
    return fmean(full / own for full, own in zip(FULL_MS, _latency_ms(RANDOM)))


def _gains(ranks: int, late: int, delays_s: tuple[float, ...], per_s: tuple[float, ...]) -> list[float]:
    """Return speed-ups of steps that wait for no late rank, from the rates of synchronous steps."""
    pairs = zip(delays_s, per_s)
    return [1 / (1 - rate * in_turn_lost_s(ranks, late, delay_s, 1 / rate - delay_s)) for delay_s, rate in pairs]


def _cifar_s() -> float:
    step_s = CIFAR_SYNC_S / CIFAR_STEPS - 8 * CIFAR_DELAY_S
    return CIFAR_SYNC_S - CIFAR_STEPS * lost_s(8, step_s, rotating(8, CIFAR_DELAY_S))


def _imagenet_row(system: str, published: tuple[float, float], note: str) -> Row:
    return Row(
        f"ImageNet on 64 ranks, 4 late by 300, 460 ms: eager-solo over {system}",
        Mark.TEXT,
        "section 7",
        published,
        lambda: _gains(64, 4, IMAGENET_S, IMAGENET_SYNC[system]),
        within=0.05,
        missed=Missed.OPEN,
        note=note,
    )


ROWS = (
    Row("MPI_Allreduce, 64 B", Mark.FIG, "Fig. 9", FULL_MS[0], lambda: _closed_ms(SYNC), unit="ms"),
    Row("majority, 64 B", Mark.FIG, "Fig. 9", MAJORITY_MS[0], lambda: _closed_ms(RANDOM), within=0.02, unit="ms"),
    Row(
        "solo, 64 B",
        Mark.FIG,
        "Fig. 9",
        SOLO_MS[0],
        lambda: _closed_ms(SOLO),
        unit="ms",
        missed=Missed.EXPLAINED,
        note=FEW_MS,
    ),
    Row(
        f"majority: {LARGER}",
        Mark.FIG,
        "Fig. 9",
        MAJORITY_MS[1:],
        lambda: _latency_ms(RANDOM)[1:],
        within=0.1,
        unit="ms",
        missed=Missed.OPEN,
        note="Transfer times are taken from the column of MPI_Allreduce. The paper's partial collective is another "
        "implementation, and slower for messages of 32 KB and more.",
    ),
    Row(
        f"solo: {LARGER}",
        Mark.FIG,
        "Fig. 9",
        SOLO_MS[1:],
        lambda: _latency_ms(SOLO)[1:],
        within=0.1,
        unit="ms",
        missed=Missed.EXPLAINED,
        note=FEW_MS,
    ),
    Row(
        "MPI_Allreduce over majority, mean over sizes",
        Mark.TEXT,
        "section 7.1",
        2.46,
        _mean_reduction,
        within=0.1,
        missed=Missed.OPEN,
        note="Follows from the larger messages in the row of `majority`. At 64 B alone the figure gives 2.94.",
    ),
    Row(
        "majority: active processes of 32, mean",
        Mark.TEXT,
        "section 7.1",
        16.0,
        lambda: expected_fresh(RANDOM, RANKS),
        within=0.035,
        note="(P + 1) / 2; the paper says half.",
    ),
    Row(
        "majority: active processes of 32, standard deviation",
        Mark.FIG,
        "Fig. 9",
        7.0,
        lambda: pstdev(fresh_counts(RANDOM, RANKS)),
        missed=Missed.OPEN,
        note="An initiator that is drawn evenly gives a uniform distribution over 1 to 32. The paper's counts are "
        "narrower, and their mean is up to 18: ranks that arrive while a round starts may count as active.",
    ),
    Row("solo: active processes", Mark.TEXT, "section 7.1", 1.0, lambda: expected_fresh(SOLO, RANKS), within=0.0),
    *(
        Row(
            f"{name} of 8 ranks: mean wait over skew",
            Mark.CALC,
            "closed form",
            published,
            partial(expected_wait, system, 8),
            within=1e-6,
            measured=Cell(*OWN, (system,), "wait / skew"),
        )
        for name, system, published in (("full all-reduce", SYNC, 3.5), ("majority", RANDOM, 1.3125))
    ),
    Row(
        "majority of 8 ranks: active processes, mean",
        Mark.CALC,
        "closed form",
        4.5,
        lambda: expected_fresh(RANDOM, 8),
        within=1e-6,
        note="Measured over few rounds with random initiators.",
        measured=Cell(*OWN, (RANDOM,), "in time"),
    ),
    Row(
        "hyperplane on 8 ranks, one late by 200, 300, 400 ms: eager-solo over synchronous",
        Mark.TEXT,
        "section 7",
        (1.50, 1.75, 2.01),
        lambda: _gains(8, 1, HYPERPLANE_S, HYPERPLANE_SYNC),
        within=0.1,
        missed=Missed.EXPLAINED,
        note=SLEEPS,
    ),
    Row(
        "our training of digits on 8 ranks, one late by 200 ms: solo and majority over synchronous",
        Mark.OWN,
        "[partial.md](partial.md#measured)",
        lambda: [digits(exchange, "over sync").number() for exchange in ("solo", "majority")],
        lambda: _gains(8, 1, DIGITS_S, (digits("sync", "steps per second").number(),)) * 2,
        within=0.05,
        note="Not in the paper: our measurement, and the model that the row above uses.",
    ),
    _imagenet_row(
        "Deep500",
        (1.25, 1.29),
        "The model has no cost of eager-SGD itself. The paper's eager steps take longer than Deep500's without late "
        "ranks would: 0.80 s, and 1 s - 0.3 s.",
    ),
    _imagenet_row("Horovod", (1.14, 1.27), "As the row above."),
    Row(
        "CIFAR-10 on 8 ranks, delays of 50 to 400 ms rotate: time of majority",
        Mark.FIG,
        "Fig. 12",
        8607.0,
        _cifar_s,
        within=0.1,
        unit="s",
        note="From the 11,128 s of synchronous training, for an exchange that waits for nobody. Every rank needs its "
        "own delays, 225 ms per step on average.",
    ),
    Row(
        "the same, time of solo",
        Mark.FIG,
        "Fig. 12",
        3534.0,
        _cifar_s,
        unit="s",
        missed=Missed.EXPLAINED,
        note="18,555 steps with delays of 225 ms on average take 4,175 s without any computing. So ranks of the "
        "paper's run did not do all steps with all delays.",
    ),
)

PAPER = Paper(
    "eager-SGD",
    "Li et al., *Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations*, PPoPP "
    "2020, arXiv 1908.04207",
    "We had the full text and its repository.",
    "partial.md",
    ROWS,
    (
        ("solo reduces latency by 53.32 on average", "the model's wait of solo is 0; the ratio needs its activation"),
        ("UCF101: 1.27 and 1.64", "the lengths of the videos in each batch are not published"),
        ("Table 2: Asynch-PS, D-PSGD, SGP", "these systems are not part of Paceline"),
        ("accuracies, and accuracy without model synchronisation", "need trainings on ImageNet and UCF101"),
        ("Theorem 6.3", "gives orders, not numbers"),
        ("steps per second of majority, hyperplane", "the text's 1.64 and 1.37 contradict its figure's 2.46"),
    ),
)
