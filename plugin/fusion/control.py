"""Control of merging in this process: the policy, and the thread that drives it."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING, Any

from paceline import config
from paceline.errors import UserError
from paceline.fusion.bridge import Bridge
from paceline.fusion.driver import Driver, Limits, State
from paceline.fusion.policies import Policy
from paceline.fusion.resolve import resolve
from paceline.log import log
from paceline.native.world import process
from paceline.registry.policies import EXCLUDING, THRESHOLD
from paceline.variables import switched_on

if TYPE_CHECKING:
    from paceline.fusion.policies import PolicyFunction
    from paceline.record.trace import Costs

# Intervals of the drivers' polls: while a plan is being made, and while one is followed.
LOOK_S = 0.02
REST_S = 0.2
_WORLD = 0  # the process set of all ranks


class Control:
    """Control of merging in one of Horovod's libraries, in this process."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.bridge = Bridge(library)
        self.policy: Policy | None = None
        self.drivers: dict[int, Driver] = {}
        self._limits = Limits(1, 0, 1.0, 1.0)
        self._lock = threading.Lock()  # protects policy, limits and drivers
        self._thread: threading.Thread | None = None

    def choose(self, policy: Policy, limits: Limits) -> None:
        """Use `policy` from now on."""
        self.bridge.want_armed(config.beside(policy.name, "armed"))
        with self._lock:
            if self.policy is not None and policy.digest == self.policy.digest and limits == self._limits:
                return
            self.policy, self._limits = policy, limits
            self.drivers.clear()
            self.bridge.want(policy.digest if policy.makes_plans else 0)
            if policy.makes_plans and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="paceline fusion", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(LOOK_S if self._look() else REST_S)

    def _look(self) -> bool:
        """Advance every driver; return True if one of them waits for an event that is expected soon."""
        with self._lock:
            policy = self.policy
            if policy is None or not policy.makes_plans:
                return False
            busy = False
            for process_set in self.bridge.process_sets():
                status = self.bridge.status(process_set)
                if status is None or status.rank != 0 or status.size < 2:
                    continue
                driver = self.drivers.get(process_set)
                if driver is None or driver.serial != status.serial:
                    driver = Driver(self.bridge, process_set, policy, self._limits, status.serial)
                    self.drivers[process_set] = driver
                try:
                    driver.look()
                except Exception as error:  # a defect of Paceline must not end training
                    driver.state, driver.reason = State.REFUSED, f"{type(error).__name__}: {error}"
                    log(f"fusion={policy.name} stopped: {driver.reason}. Training goes on; please report this.")
                busy = busy or driver.state not in (State.ACTIVE, State.STOCK, State.REFUSED)
            return busy


def control(library: ctypes.CDLL) -> Control:
    """Return the control of `library`."""
    return process(library).of(Control, lambda: Control(library))


def _limits(settings: config.Settings) -> Limits:
    return Limits(
        settings.fusion_warmup_steps,
        settings.fusion_watch_steps,
        settings.fusion_time_limit_s,
        settings.gate_timeout_ms * 1e-3,
        settings.fusion_trial_steps,
        settings.fusion_follow,
    )


def _checked(policy: Policy, given_as: str) -> Policy:
    for variable, (conflict, remedy) in EXCLUDING.items():
        if policy.makes_plans and switched_on(variable):
            raise UserError(f"{given_as}={policy.name} and {variable}=1 exclude each other: {conflict}.", remedy)
    return policy


def begin(library: ctypes.CDLL, settings: config.Settings) -> None:
    """Use the policy of the variables, before init(). A policy that a wrapper requested earlier stays."""
    if "fusion" in settings.given() or settings.fusion != THRESHOLD:
        policy = _checked(resolve(settings.fusion), settings.origin("fusion"))
        control(library).choose(policy, _limits(settings))
    elif (known := chosen(library)) is not None and known.policy is not None:
        known.choose(_checked(known.policy, "fusion"), _limits(settings))


def choose(library: ctypes.CDLL, fusion: str | PolicyFunction | Policy) -> str:
    """Use the policy of a wrapper's argument `fusion` for every gradient of this process. Return the policy's name.

    Raises UserError for an unknown policy, and for one with plans if a variable of Horovod's excludes plans.
    """
    policy = _checked(resolve(fusion), "fusion")
    control(library).choose(policy, _limits(config.settings()))
    return policy.name


def measured(library: ctypes.CDLL) -> Costs | None:
    """Return the measurement by all ranks of `library` for the first plan, on the rank that drives it."""
    found = chosen(library)
    driver = None if found is None else found.drivers.get(_WORLD)
    return None if driver is None else driver.costs


def chosen(library: ctypes.CDLL) -> Any:
    """Return the control of `library` if merging was ever requested in this process, else None."""
    return process(library).find(Control)
