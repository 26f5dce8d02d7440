"""One rank of a case: it trains under the injector, and reports how it ended."""

from __future__ import annotations

import faulthandler
import importlib
import io
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from integration_tests.faults.matrix.cases import FIRST_SAVED, STEPS, Case
from integration_tests.faults.matrix.injector import SETTLED_S, Injector, Undisturbed
from integration_tests.faults.matrix.sentences import Action, Moment
from integration_tests.faults.matrix.training import Training

CHECKPOINT = "disk/checkpoint.npz"
WARM_STEPS = 3  # in worlds before that of the fault


@dataclass
class Report:
    """End of one rank.

    `error`, `text`: class and text of what it raised, at `time_s` (CLOCK_MONOTONIC); empty if it finished. `off`:
    largest difference of a weight from its expected value after all steps. `notes`: errors that the script survived.
    """

    rank: int
    error: str = ""
    text: str = ""
    time_s: float = 0.0
    steps: int = 0
    off: float | None = None
    notes: str = ""


def run(rank: int, size: int, case: Case, folder: str) -> None:
    """Train, and write the report to `folder`. Never raises."""
    report = Report(rank)
    injector = Injector(case, rank, folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = str(case.gloo_limit_s)
    try:
        _train(rank, size, case, injector, report, Path(folder))
    except BaseException as error:
        report.time_s = time.monotonic()
        report.error, report.text = type(error).__name__, str(error)
        traceback.print_exc()
        _shut_down()
    report_file = Path(folder) / f"report.{rank}.json"
    new = report_file.with_suffix(".new")
    new.write_bytes(msgspec.json.encode(report))
    new.rename(report_file)
    if report.error and injector.victim and case.fault.action is not Action.STOP:
        os._exit(1)


def _shut_down() -> None:
    """Leave as a script does that shuts Horovod down in a finally block, or at its exit."""
    for name in ("torch", "tensorflow"):
        if f"horovod.{name}.mpi_ops" in sys.modules:
            importlib.import_module(f"horovod.{name}").shutdown()


def _train(rank: int, size: int, case: Case, injector: Injector, report: Report, folder: Path) -> None:
    training, begin = _begun(rank, size, case, injector)
    for at in range(STEPS):
        training.step(begin + at, at)
        report.steps = begin + at + 1
        if injector.is_at(Moment.DRAIN, at):
            _inside(injector, "drain", training.drain)
        due = injector.is_at(Moment.CHECKPOINT, at)
        if due or at == FIRST_SAVED:
            training.drain()
            weights = training.weights()
            if rank == 0:
                _save(folder / CHECKPOINT, weights, injector, due, report)
            elif due and injector.victim:
                injector.wait_for("half", 0)
                injector.act(checkpoint="half written")
    training.drain()
    report.off = training.off(report.steps)
    training.end()
    if injector.is_at(Moment.SHUTDOWN):
        _inside(injector, "shutdown", training.hvd.shutdown)
    training.hvd.shutdown()


def _begun(rank: int, size: int, case: Case, injector: Injector) -> tuple[Training, int]:
    """Initialize the library and make the first steps; return the training and the number of its next step."""
    made: Any
    if case.exchange == "stages":
        from integration_tests.faults.matrix.stages_training import StagesTraining as made
    elif case.framework == "torch":
        from integration_tests.faults.matrix.torch_training import TorchTraining as made
    else:
        from integration_tests.faults.matrix.keras_training import KerasTraining as made
    hvd = sys.modules[made.__module__].hvd
    for _ in range(case.worlds_before):
        hvd.init()
        _train_undisturbed(made(case, Undisturbed(case, rank), rank))
        hvd.shutdown()
    if injector.is_at(Moment.INIT) and case.fault.action is not Action.SHAPE:
        _inside(injector, "init", hvd.init)
    else:
        hvd.init()
    training = made(case, injector, rank)
    if injector.is_at(Moment.INIT) and injector.victim:
        injector.act()  # another shape from the beginning
    return training, training.begin()


def _train_undisturbed(training: Training) -> None:
    first = training.begin()
    for at in range(WARM_STEPS):
        training.step(first + at, at)
    training.drain()
    training.end()


def _inside(injector: Injector, place: str, call: Callable[[], Any]) -> None:
    """Call a function of the library in which the fault happens.

    Before an even step of the sentence the victim has not called it when the fault happens, and the others wait in it.
    Before an odd one the victim is in it, if the fault is a signal and the function communicates.
    """
    case = injector.case
    by_signal = case.fault.action in (Action.KILL, Action.STOP, Action.PAUSE, Action.INTERRUPT)
    communicates = case.fault.moment is not Moment.DRAIN or case.exchange not in ("sync", "armed", "split")
    alone = by_signal and communicates and case.fault.step % 2 == 1
    if injector.victim and alone:
        injector.act_in_thread(lambda: _soon(case.fault.moment))
    elif injector.victim:
        injector.wait_for_others(place)
        time.sleep(SETTLED_S)
        injector.act(others=f"in {place}")
    elif alone:
        injector.wait_for_mark()
    else:
        injector.reached(place)
    call()


def _soon(moment: Moment) -> dict[str, object]:
    """Wait until the other thread is in the library; the ranks agree on their end within milliseconds."""
    wait_s = 0.001 if moment is Moment.SHUTDOWN else SETTLED_S
    time.sleep(wait_s)
    return {"after_s": wait_s}


def _save(path: Path, weights: list[Any], injector: Injector, due: bool, report: Report) -> None:
    """Write a checkpoint: a new file that replaces the last one when it is complete."""
    data = io.BytesIO()
    np.savez(data, steps=report.steps, **{f"w{number}": one for number, one in enumerate(weights)})
    written, new = data.getvalue(), path.with_suffix(".new")
    try:
        with new.open("wb") as file:
            file.write(written[: len(written) // 2])
            file.flush()
            if due and injector.victim:
                injector.act(checkpoint="half written")
            elif due:
                injector.reached("half")
                injector.wait_for_mark()
            file.write(written[len(written) // 2 :])
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        report.notes += f"checkpoint {path.name} of step {report.steps} was not written: {error}. "


def main() -> None:
    """Run a case as a process that a launcher has started; the folder has the case."""
    folder = sys.argv[1]
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    case = pickle.loads((Path(folder) / "case.pickle").read_bytes())
    run(int(os.environ["HOROVOD_RANK"]), case.size, case, folder)


if __name__ == "__main__":
    main()
