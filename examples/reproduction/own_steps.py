"""Our own rows of training steps: armed steps, the pipelined exchange, pipeline stages, and `paceline advise`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from paceline.core._core import CostModel
from paceline.examples.benchmarks.networks import models
from paceline.examples.reproduction.measured import FOLDER, Cell
from paceline.examples.reproduction.own import BENCHMARKS, NOTED_ABOVE, OwnRow
from paceline.examples.reproduction.pipemare import utilisation
from paceline.fusion.from_trace import Measurements
from paceline.fusion.gradient import Gradient
from paceline.fusion.planning import make_plan
from paceline.fusion.resolve import resolve
from paceline.predict.iteration import Iteration
from paceline.predict.recorded import RecordedIteration
from paceline.predict.scaling import ARMED, Scaling, of_ring
from paceline.registry.policies import OPTIMAL

PLANNED = re.compile(r"planned at ([\d.]+) ms \+ ([\d.]+) ms/MB each and ([\d.]+) ms of coordination")
# Case of benchmarks.md -> model.
STEPS = {
    "resnet20": "resnet20",
    "resnet20-2-hosts": "resnet20",
    "resnet50-x0.1": "resnet50-x0.1",
    "resnet50": "resnet50",
    "vgg16-x0.3": "vgg16-x0.3",
    "resnet20-rtt": "resnet20",
    "bert-x0.02-rtt": "bert-base-x0.02",
    "bert-x0.02-fast-rtt": "bert-base-x0.02-t0.5",
    "vgg16-x0.02-rtt": "vgg16-x0.02",
    "many": "many",
}

MANY = "The hooks of a thousand gradients use the processors that also send them, which the model leaves out."


def rows() -> Iterator[OwnRow]:
    """Yield the rows."""
    yield from _merging()
    yield from _scaled()
    yield from _pipelined()
    yield from _stages()
    yield from _advice()


def _merging() -> Iterator[OwnRow]:
    for case, model in STEPS.items():
        cell = Cell(BENCHMARKS, case + ":", ("armed_optimal",), "time ms")
        yield OwnRow(
            "armed steps: costs of messages, step without communication",
            f"{case}, armed, ms",
            BENCHMARKS,
            cell.number,
            partial(_armed_ms, case, model),
            MANY if case == "many" else "",
        )


def _armed_ms(case: str, model: str) -> float:
    """Return the step of the policy `optimal` from the printed costs, and the step without communication."""
    a_ms, b_ms, coordination_ms = _planned(case)
    cost = CostModel.linear(a_ms / 1e3, b_ms / 1e9)
    alone_ms = Cell(BENCHMARKS, case + ":", ("alone",), "time ms").number()
    plan = make_plan(
        resolve(OPTIMAL), gradients(model), cost,
        coordination_s=coordination_ms / 1e3, cycle_s=1e-3, threshold_bytes=128 << 20, armed=True,
    )  # fmt: skip
    return alone_ms + 1e3 * plan.predicted[OPTIMAL].exposed_s


def _planned(case: str) -> tuple[float, float, float]:
    text = (FOLDER / BENCHMARKS).read_text()
    match = PLANNED.search(text, text.index(f"#### {case}:"))
    assert match is not None
    return float(match[1]), float(match[2]), float(match[3])


@cache
def gradients(name: str) -> tuple[Gradient, ...]:
    """Return the gradients of a benchmark's network, whose layers take their shares of the backward pass."""
    model = models.find(name)
    made: list[Gradient] = []
    ready_s: float | None = None
    at_s = 0.0
    for layer, share in reversed(list(zip(model.layers, model.shares, strict=True))):
        at_s += share * model.backward_ms / 1e3
        for tensor, shape in reversed(layer.tensors):
            ready_s = at_s if ready_s is None else ready_s
            size = models.BYTES_PER_ELEMENT * int(np.prod(shape, dtype=np.int64))
            made.append(Gradient(f"{layer.name}.{tensor}.{len(made)}", size, at_s - ready_s))
    return tuple(made)


# Armed steps among four hosts, from two hosts.


def _scaled() -> Iterator[OwnRow]:
    cell = Cell(BENCHMARKS, "resnet20:", ("armed_optimal",), "time ms")
    kind = "number of workers: costs of messages and a round among 2 hosts"
    yield OwnRow(kind, "resnet20, armed, 4 hosts, ms", BENCHMARKS, cell.number, _of_two_hosts_ms)


def _of_two_hosts_ms() -> float:
    case = "resnet20-2-hosts"
    a_ms, b_ms, coordination_ms = _planned(case)
    cost = CostModel.linear(a_ms / 1e3, b_ms / 1e9)
    tensors = gradients("resnet20")
    alone_s = Cell(BENCHMARKS, case + ":", ("alone",), "time ms").number() / 1e3
    back_s = tensors[-1].ready_s
    iteration = Iteration(0.0, alone_s - back_s, back_s, tensors, cost)
    measured = Measurements(tensors, (), coordination_ms / 1e3, {}, 1, 2, back_s, 1.0, 0.0)
    recorded = RecordedIteration(iteration, alone_s, overlaps=False)
    found = Scaling(recorded, measured, of_ring(cost, 2), coordination_ms / 1e3, 2).at(4)
    return 1e3 * next(one.step_s for one in found.settings if one.name == ARMED)


# The pipelined exchange where communication takes as long as computation, or a third.

BALANCED = ("lstm-x0.01, 1.0", "resnet50-x0.02, 1.0", "resnet50-x0.02, 0.3")


def _pipelined() -> Iterator[OwnRow]:
    for case in BALANCED:
        step = partial(_balance, case)
        for system in ("pipelined", "pipelined_optimal"):
            yield OwnRow(
                "pipelined: the longer of computation and communication",
                f"{system}, {case}, ms", BENCHMARKS, partial(step, system), partial(_longer, case),
            )  # fmt: skip
        yield OwnRow(
            "synchronous, merged by plan: time per byte of one large message",
            f"sync_optimal, {case}, ms", BENCHMARKS, partial(step, "sync_optimal"), partial(_merged_ms, case),
        )  # fmt: skip


def _balance(case: str, system: str) -> float:
    return Cell(BENCHMARKS, "pipelined-balance", (case, system), "step").number()


def _longer(case: str) -> float:
    return max(_balance(case, "alone"), _balance(case, "communication"))


def _merged_ms(case: str) -> float:
    tensors = gradients(case.partition(",")[0])
    cost = CostModel.linear(0.0, _balance(case, "communication") / 1e3 / sum(one.bytes for one in tensors))
    plan = make_plan(
        resolve(OPTIMAL), tensors, cost, coordination_s=0.0, cycle_s=1e-3, threshold_bytes=128 << 20
    )  # fmt: skip
    return _balance(case, "alone") + 1e3 * plan.predicted[OPTIMAL].exposed_s


# Pipeline stages that sleep: the schedule's utilisation.

SCHEDULES = {"stages:": ("gpipe", "1f1b"), "stages-late": ("gpipe", "pipedream", "2bw", "pipemare")}


def _stages() -> Iterator[OwnRow]:
    for section, names in SCHEDULES.items():
        for name in names:
            yield OwnRow(
                "stages: the schedule",
                f"{name}, 4 stages, {section.rstrip(':')}, utilisation",
                BENCHMARKS,
                Cell(BENCHMARKS, section, (name,), "utilisation").number,
                partial(utilisation, name, 4, 4),
            )


# `paceline advise`: predictions and measurements of one run.


REASONS = "The reasons, as far as they are known, are on the page."


def _advice() -> Iterator[OwnRow]:
    page = "../guides/advise.md"
    lines = (FOLDER / page).read_text().splitlines()
    table = [
        [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|") and line.count("|") == 8
    ]
    script = ""
    for cells in table[2:]:
        script = cells[0].replace("the same", script.partition(",")[0]) or script
        if cells[0]:
            recorded, predicted = (float(cell.split()[0]) for cell in cells[1:3])
            yield _advised(page, f"stock, {script}, ms", recorded, predicted)
        yield _advised(page, f"{cells[3]}, {script}, of stock", float(cells[5].split()[0]), float(cells[4]))


def _advised(page: str, quantity: str, measured: float, predicted: float) -> OwnRow:
    note = REASONS if abs(predicted / measured - 1) > NOTED_ABOVE else ""
    return OwnRow(
        "`paceline advise`: recorded steps and costs", quantity, page, lambda: measured, lambda: predicted, note
    )
