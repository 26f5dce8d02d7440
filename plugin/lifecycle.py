"""Work of Paceline when a world of Horovod begins and ends.

`paceline.horovod.shims.glue` calls `before_init`, `after_init` and `before_shutdown`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from paceline import config, progress, uncaught, variables
from paceline.arguments import check_reproducible, choice_asked
from paceline.collectives import probed
from paceline.common_settings import Setting
from paceline.config import exchange_of_variables
from paceline.debug_values import EVENTS
from paceline.errors import UserError
from paceline.exchange import elastic
from paceline.exchange.worlds import new_world
from paceline.failure import notice
from paceline.launchers import alone_by_mistake
from paceline.leaving import reasons
from paceline.leaving.leave import leave
from paceline.log import log
from paceline.native.interruptible import LOOK_S
from paceline.native.library import library_name
from paceline.native.prototypes import declare
from paceline.native.world import begin_world, everywhere, process
from paceline.partial.state import drain_for_at_most
from paceline.record import flight_recorder
from paceline.record.last_chance import before_the_end
from paceline.record.snapshot import take
from paceline.record.stop import Stop
from paceline.record.trace import Costs, part_path, write
from paceline.registry import making
from paceline.registry.collectives import AUTO
from paceline.registry.policies import THRESHOLD

uncaught.install()

# Timeout of a rank that ends for its gradients in flight.
SHUTDOWN_LIMIT_S = 60.0

# Held while a trace is written. Reentrant, because a signal handler may interrupt the same thread.
_writing = threading.RLock()


class _Recording(NamedTuple):
    """State of a library that records: the path of its trace."""

    path: Path


def before_init(library: ctypes.CDLL) -> list[Setting]:
    """Read this process's options and pass them to `library`; return those that all ranks must have in common.

    Raises UserError for options that cannot be used.
    """
    settings = config.begin()
    declare(library)
    reasons.install()
    drain_for_at_most(settings.drain_limit_s)
    library.horovod_paceline_fusion_want_armed(int(settings.armed))
    if settings.fusion != THRESHOLD or "paceline.fusion.control" in sys.modules:
        from paceline.fusion import control

        control.begin(library, settings)
    # A second init() without shutdown() in between has no effect, and keeps what is in flight.
    if not library.horovod_is_initialized():
        begin_world(library)
        new_world(library)
        probed.forget(library)
    choice = choice_asked()
    library.horovod_paceline_collective(
        choice.collective_number,
        settings.collective_block_bytes,
        choice.codec_number,
        int(choice.error_feedback),
        settings.codec_least_bytes,
        int(settings.reproducible),
    )
    library.horovod_paceline_check_numerics(config.CHECKS.index(settings.check_numerics))
    library.horovod_paceline_wake(int(settings.wake == EVENTS))
    exchange_of_variables().check_environment()
    check_reproducible(exchange_of_variables())
    if not exchange_of_variables().synchronous:
        _refuse_keras_2(library, settings.exchange)
    if settings.record is not None and process(library).find(_Recording) is None:
        library.horovod_paceline_record_start(settings.record_steps)
        process(library).put(_Recording(settings.record))
        before_the_end(_write_all)
    if progress.asked():
        progress.came_to_init()
    return settings.shared()


def _refuse_keras_2(library: ctypes.CDLL, exchange: str) -> None:
    if library_name(library) == "tensorflow" and variables.switched_on("TF_USE_LEGACY_KERAS"):
        raise UserError(
            f"PACELINE_EXCHANGE={exchange} is set together with TF_USE_LEGACY_KERAS: optimizers of Keras 2 cannot "
            "leave out an update.",
            "Unset PACELINE_EXCHANGE, or use Keras 3.",
        )


def after_init(library: ctypes.CDLL) -> None:
    """Warn on rank 0 about settings that have no effect or imply something not requested.

    Also starts the watch for the first step if requested. Raises UserError if ranks have different network files.
    """
    settings = config.settings()
    recording = process(library).find(_Recording)
    if recording is not None and settings.record_stop:
        process(library).of(
            Stop,
            lambda: Stop(
                library,
                recording.path,
                settings.record_stop,
                settings.record_stop_s,
                lambda: _write(library, recording.path),
            ),
        )
    if library.horovod_size() == 1 and (mistake := alone_by_mistake(variables.environ())):
        log(mistake)
    _agree_on_network(library, settings)
    elastic.after_init(library)
    kept = recording is not None or settings.metrics is not None
    if settings.metrics is not None:
        from paceline.metrics import textfile

        textfile.begin(library, settings, recorded=recording is not None)
    if settings.history is not None:
        from paceline.history import writer
        from paceline.history.graphs import observe

        writer.begin(library, settings.history)
    making.observe_with(None if settings.history is None else observe)
    if library.horovod_rank() == 0:
        if library.horovod_size() > 1:
            _announce_collective(settings)
        if progress.asked():
            progress.watch(library, recorded=kept)
        for sentence in settings.without_effect():
            log(sentence)


def _announce_collective(settings: config.Settings) -> None:
    choice = choice_asked()
    if choice.lossy and "collective" not in settings.given():
        log(f"PACELINE_CODEC={choice.codec}: messages go by collective={choice.collective}.")


def _agree_on_network(library: ctypes.CDLL, settings: config.Settings) -> None:
    # A network file counts also for wrappers that choose auto. A rank without one takes part if its variables say auto.
    if library.horovod_size() > 1 and (settings.network_file is not None or choice_asked().collective == AUTO):
        probed.use(library, settings.network_file)


def _say_if_exchange_was_not_used(library: ctypes.CDLL) -> None:
    # A script that failed earlier has a more important message.
    failed = hasattr(sys, "last_type")
    if failed or making.given() or making.explained() or library.horovod_size() == 1 or library.horovod_rank() != 0:
        return
    if not exchange_of_variables().synchronous:
        log(
            f"PACELINE_EXCHANGE={config.settings().exchange} had no effect: no optimizer and no tape was wrapped, and "
            "what a script all-reduces by itself is synchronous. Wrap the optimizer with hvd.DistributedOptimizer, or "
            "the tape with hvd.DistributedGradientTape."
        )


def before_shutdown(library: ctypes.CDLL) -> None:
    """Take part until all ranks have finished, and write the trace; called at each shutdown.

    A later shutdown overwrites the trace of an earlier one. A rank that left with a gradient in flight would withhold
    it from the other ranks.
    """
    if library.horovod_is_initialized():
        if reasons.resetting():
            elastic.before_reset(library)
        elif reasons.failed():
            notice.notify(library)
        leave(library)
        if not reasons.failed():  # what a failed world has in flight may never end
            _settle(library)
        if (observer := sys.modules.get("paceline.history.observer")) is not None:
            observer.end(library, reasons.failed())
        if (textfile := sys.modules.get("paceline.metrics.textfile")) is not None:
            textfile.end(library)
        _say_if_exchange_was_not_used(library)
        progress.before_shutdown(not (reasons.failed() or reasons.resetting()), reasons.status())
    if (recording := process(library).find(_Recording)) is not None:
        _write(library, recording.path)


def _settle(library: ctypes.CDLL) -> None:
    end = time.monotonic() + SHUTDOWN_LIMIT_S
    # In slices, so that Ctrl-C is handled in between.
    while not library.horovod_paceline_pipelined_settle_all(LOOK_S) and time.monotonic() < end:
        pass


def _write(library: ctypes.CDLL, record: Path) -> None:
    # After shutdown() the rank number is undefined, and the trace was written before.
    if not library.horovod_is_initialized():
        return
    stop = process(library).find(Stop)
    if stop is not None and stop.written:  # later steps belong to a run that is being ended
        return
    with _writing:
        flight_recorder.write(library, record)
        processors = None if stop is None else stop.processors()
        trace = msgspec.structs.replace(take(library), costs=_costs(library), processors=processors or msgspec.UNSET)
        if trace.steps:
            path = part_path(record, trace.rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            write(trace, path)


def _costs(library: ctypes.CDLL) -> Costs | msgspec.UnsetType:
    """Return the cost measurement of all ranks for plans, on the rank that makes plans."""
    if "paceline.fusion.control" not in sys.modules:
        return msgspec.UNSET
    from paceline.fusion.control import measured

    return measured(library) or msgspec.UNSET


def _write_all() -> None:
    for library, recording in everywhere(_Recording):
        try:
            _write(library, recording.path)
        except UserError as error:  # the exit of the process must not fail for it
            log(str(error))
