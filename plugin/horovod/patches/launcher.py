"""Edits of Horovod's launcher, horovodrun: its imports, and its waits.

Each calls a module of `plugin/horovod/shims`.
"""

from __future__ import annotations

from paceline.horovod.edits import Edit

_CMAKE = "CMakeLists.txt"
_UTIL = "horovod/common/util.py"
_GLOO_RUN = "horovod/runner/gloo_run.py"
_DRIVER = "horovod/runner/elastic/driver.py"
_DRIVER_SERVICE = "horovod/runner/driver/driver_service.py"

_PARTS = ("mpi", "gloo", "nccl", "ddl", "ccl")
_SAY_BUILD = " ".join(f'\\"built_with_{part}\\": \\"${{HAVE_{part.upper()}}}\\",' for part in _PARTS)
_METADATA = 'file(APPEND "${CMAKE_LIBRARY_OUTPUT_DIRECTORY_ROOT}/metadata.json"'

# The build records its parts in the file with the frameworks' versions; the launcher reads it.
LIGHT_EDITS: tuple[Edit, ...] = (
    Edit(_CMAKE, _METADATA + ' "\\"dummy\\": \\"none\\"\\n}")', "before", f'{_METADATA} "{_SAY_BUILD}\\n")'),
    *(
        Edit(
            _UTIL,
            "for ext_base_name in EXTENSIONS:",
            "before",
            "from horovod._paceline import built_with\n"
            f'if built_with.known("{part}") is not None:\n'
            f'    return built_with.known("{part}")',
            within=f"def {part}_built(verbose=False):",
        )
        for part in _PARTS
    ),
    # Horovod mutes the imports of --check-build in Python only; C++ writes to the descriptors.
    Edit(
        _UTIL,
        "sys.stderr = open(os.devnull, 'w')",
        "after",
        "os.dup2(sys.stdout.fileno(), 1)\nos.dup2(sys.stderr.fileno(), 2)",
    ),
)

# A signal handler may run between any two instructions of the main thread, even inside the same handler, and the lock
# of Event.set() is not reentrant. Two signals are common: a parent that dies sends one for each of its threads
# (prctl(2), PR_SET_PDEATHSIG), and users press Ctrl-C twice.
_HANDLERS = "def register_shutdown_event():"
TWO_SIGNALS_EDITS: tuple[Edit, ...] = (
    Edit(_GLOO_RUN, "event = threading.Event()", "after", "received = []", within=_HANDLERS),
    Edit(
        _GLOO_RUN,
        "event.set()",
        "replace",
        "if not received:\n    received.append(signum)\n    event.set()",
        within=_HANDLERS,
    ),
)

_SHIM = "from horovod._paceline import elastic_hosts"

ELASTIC_HOSTS_EDITS: tuple[Edit, ...] = (
    Edit(
        _GLOO_RUN,
        "min_hosts = _get_min_start_hosts(settings)",
        "after",
        f"{_SHIM}\nnics = elastic_hosts.of_only_host(driver, settings, min_hosts)\nif nics:\n    return nics",
    ),
    Edit(
        _DRIVER,
        "self._wait_hosts_cond.wait(tmout.remaining())",
        "replace",
        f"{_SHIM}\nelastic_hosts.wait(self, tmout, min_num_proc, min_hosts)",
    ),
    Edit(
        _DRIVER_SERVICE,
        "nics = get_local_interfaces(settings)",
        "replace",
        f"{_SHIM}\nnics = elastic_hosts.local_interfaces(settings, get_local_interfaces)",
        within="def get_common_interfaces(settings, all_host_names, remote_host_names=None, fn_cache=None):",
    ),
)
