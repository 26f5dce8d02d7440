"""Faults of Horovod 0.28.1 that Paceline must correct, each with its patch.

Each patch has a regression test in integration_tests/faults that fails with a Horovod built without the patch
(`paceline horovod build --leave-out NAME`, `make patches`).
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.horovod.edits import Edit
from paceline.horovod.patches.bound_buffers import BOUND_BUFFERS
from paceline.horovod.patches.engines import LOST_WORKER_EDITS, RAY_2_EDITS, WORKER_ENVIRONMENT_EDITS
from paceline.horovod.patches.failure import DEAD_RANK, ENDED_WORLD, PROCESS_SETS
from paceline.horovod.patches.gloo_thread import BATCHES_EDITS, TICKS_EDITS
from paceline.horovod.patches.handles import FORKED_CHILD_EDITS, FORKED_OPERATION_EDITS, IDLE_WAITING_EDITS
from paceline.horovod.patches.launcher import ELASTIC_HOSTS_EDITS, LIGHT_EDITS, TWO_SIGNALS_EDITS
from paceline.horovod.patches.libraries import TWO_LIBRARIES_EDITS
from paceline.horovod.patches.lifecycle import ELASTIC_INTERRUPTS_EDITS, LIFECYCLE_EDITS
from paceline.horovod.patches.naming import GRAPH_NAMES, TORCH_NAMES
from paceline.horovod.patches.privacy import ENVIRONMENT_EDITS, LOOPBACK_EDITS
from paceline.horovod.patches.python import KERAS3_EDITS, TENSORFLOW


@dataclass(frozen=True)
class Patch:
    """A patch; `fault` describes what users see without it."""

    name: str
    fault: str
    edits: tuple[Edit, ...]


_GLOO_CONTEXT = "horovod/common/gloo/gloo_context.cc"
_GLOO_CONTROLLER = "horovod/common/gloo/gloo_controller.cc"
_OPERATIONS = "horovod/common/operations.cc"
_CONTROLLER = "horovod/common/controller.cc"
_TENSORFLOW_OPS = "horovod/tensorflow/mpi_ops.cc"
_TORCH_OPTIMIZER = "horovod/torch/optimizer.py"
_RUNNER = "horovod/runner/__init__.py"
_BASICS = "horovod/common/basics.py"
_TIMELINE = "horovod/common/timeline.cc"

_CONNECT = "if (!::horovod::paceline::Connect([&] {"
# Release what was opened so far, so that shutdown() and another init() start from a clean state.
_CONNECT_FAILED = (
    "})) {\n"
    "  state.process_set_table.Get(0).Finalize(SHUT_DOWN_ERROR);\n"
    "  global_gloo_context.Finalize();\n"
    "  state.shut_down = true;\n"
    "  state.initialization_failed = true;\n"
    "  return;\n"
    "}"
)
_INITIALIZE = "void BackgroundThreadLoop(HorovodGlobalState& state) {"

# Functions with which scripts wrap optimizers and tapes, and functions on wrapped optimizers.
_OURS_IF_ASKED = "from horovod._paceline import unmodified as _paceline\n\n\n@_paceline.ours_if_asked"
_WRAPPERS = (
    (_TORCH_OPTIMIZER, "def DistributedOptimizer(optimizer, named_parameters=None,"),
    ("horovod/torch/functions.py", "def broadcast_optimizer_state(optimizer, root_rank, model=None):"),
    (TENSORFLOW, "def DistributedOptimizer(optimizer, name=None, use_locking=False, device_dense='',"),
    (TENSORFLOW, "def DistributedGradientTape(gradtape, device_dense='', device_sparse='',"),
    (TENSORFLOW, "def PartialDistributedGradientTape(gradtape, device_dense='', device_sparse='',"),
)

PATCHES: tuple[Patch, ...] = (
    Patch(
        "gloo-iface",
        "Process sets, the global one included, ignore HOROVOD_GLOO_IFACE: hosts whose name resolves to loopback "
        "cannot connect.",
        (
            Edit(
                _GLOO_CONTEXT,
                "assert(global_context.IsEnabled());",
                "after",
                "gloo_iface_ = global_context.gloo_iface_;",
                within="void GlooContext::InitializeForProcessSet(const GlooContext& global_context,",
            ),
        ),
    ),
    Patch(
        "stall-inspector",
        "The list of global ranks stays empty under Gloo: the stall inspector never fires and every hang is silent.",
        (Edit(_GLOO_CONTROLLER, "global_ranks_.reserve(size_);", "replace", "global_ranks_.resize(size_);"),),
    ),
    Patch(
        "rendezvous-scopes",
        "When one rendezvous scope ends, the finished lists of all scopes are forgotten: shutdown() and init() again "
        "aborts or hangs.",
        (
            Edit(
                "horovod/runner/http/http_server.py",
                "self.server.finished_list.clear()",
                "replace",
                "self.server.finished_list[scope].clear()",
                within="class RendezvousHandler(KVStoreHandler):",
            ),
        ),
    ),
    Patch(
        "connect-exception",
        "An exception while ranks connect ends the process (exit 134) instead of reaching Python.",
        (
            Edit(_OPERATIONS, "global_gloo_context.InitializeFromMPI(", "before", _CONNECT, within=_INITIALIZE),
            Edit(
                _OPERATIONS,
                "state.process_set_table.Get(0).mpi_context, ParseGlooIface());",
                "after",
                _CONNECT_FAILED,
                within=_INITIALIZE,
            ),
            Edit(
                _OPERATIONS,
                "global_gloo_context.Initialize(ParseGlooIface());",
                "replace",
                _CONNECT + "\n  global_gloo_context.Initialize(ParseGlooIface());\n" + _CONNECT_FAILED,
                within=_INITIALIZE,
            ),
            Edit(
                _OPERATIONS,
                "state.process_set_table.Initialize(global_gloo_context);",
                "replace",
                _CONNECT + "\n  state.process_set_table.Initialize(global_gloo_context);\n" + _CONNECT_FAILED,
                within=_INITIALIZE,
            ),
            Edit(
                _OPERATIONS,
                "horovod_global.initialization_done = false;",
                "after",
                "horovod_global.initialization_failed = false;",
                within="bool InitializeHorovodOnce(",
            ),
            Edit(_BASICS, "if not initialization_ok:", "after", "    _paceline_glue.init_failed(self.MPI_LIB_CTYPES)"),
        ),
    ),
    Patch(
        "process-set-failures",
        "With process sets, what goes wrong while they are set up or ended aborts the process (exit 134): sets that "
        "differ between ranks, ranks that do not exist, a rank that dies.",
        PROCESS_SETS,
    ),
    Patch(
        "dead-rank",
        "After a rank died others may wait for Gloo's time limit, 30 s: who failed keeps its connections, and waiting "
        "for the rest of a message is not interrupted. Errors do not say which rank it was.",
        DEAD_RANK,
    ),
    Patch(
        "ended-world",
        "A rank whose init() ends just after another rank was lost or has shut down trains alone, without an error.",
        ENDED_WORLD,
    ),
    Patch(
        "bound-buffers",
        "Reducescatter adds up wrong numbers in silence while other messages travel on the same connection, and now "
        "and then where it is large: its result is written into memory that a queued send still reads.",
        BOUND_BUFFERS,
    ),
    Patch(
        "joined-devices",
        "The list of devices is sized by the number of requests and indexed by rank: out of bounds after a lower rank "
        "joined.",
        (
            Edit(
                _CONTROLLER,
                "devices[request.request_rank()] = request.device();",
                "replace",
                # With joined ranks the list stays shorter than the world, which keeps such responses uncached.
                "devices[(int)requests.size() == size_ ? request.request_rank() : &request - requests.data()] =\n"
                "    request.device();",
            ),
            Edit(_CONTROLLER, "tensor_sizes.resize(requests.size());", "replace", "tensor_sizes.resize(size_);"),
        ),
    ),
    Patch(
        "mismatch-ranks",
        "The error about tensors that differ between ranks names no rank, and no tensor of an allreduce.",
        (
            Edit(_CONTROLLER, '#include "global_state.h"', "after", '#include "bridge/mismatch.h"'),
            Edit(
                _CONTROLLER,
                "response.set_error_message(error_message);",
                "replace",
                "response.set_error_message(\n"
                "    error_message + ::horovod::paceline::SubmittedByRank(requests, global_ranks_));",
            ),
        ),
    ),
    Patch(
        "automatic-names",
        "PyTorch operations without a name take it from a counter of all operations of this process: after an uneven "
        "number of named ones (join), or of ones on a process set, an unnamed one waits for ever.",
        TORCH_NAMES,
    ),
    Patch(
        "graph-names",
        "In a graph of TensorFlow an unnamed operation on all ranks waits for ever if members of a process set take "
        "the same tensor on their set as well.",
        GRAPH_NAMES,
    ),
    Patch(
        "idle-waiting",
        "PyTorch operations wait for their result by yielding in a loop: a waiting rank keeps a core busy, which "
        "others on its host, or its own background thread, could use.",
        IDLE_WAITING_EDITS,
    ),
    Patch(
        "forked-child",
        "Who completes operations drops tensors, and PyTorch enters and leaves Python for each: a process that is "
        "forked at that moment, such as one that loads data, waits for ever for Python's list of threads.",
        FORKED_CHILD_EDITS,
    ),
    Patch(
        "forked-operation",
        "An operation in a process that a rank has forked, such as one that loads data, waits for ever: the background "
        "thread is the rank's.",
        FORKED_OPERATION_EDITS,
    ),
    Patch(
        "gloo-ticks",
        "Each of Gloo's threads looks around 100 times a second, whether there is anything to do or not, and who takes "
        "a connection out, as at shutdown(), waits for that, once for each.",
        TICKS_EDITS,
    ),
    Patch(
        "gloo-batches",
        "Gloo's thread wakes up for every other packet of a large message. On slow links that is more than 300 times "
        "per megabyte, and takes processor time from training.",
        BATCHES_EDITS,
    ),
    Patch(
        "timeline-end",
        "The thread that writes the timeline keeps a core busy, and at shutdown() drops what it has not written.",
        (
            Edit(_TIMELINE, "while (healthy()) {", "replace", "while (healthy() || !record_queue_.empty()) {"),
            Edit(
                _TIMELINE,
                "while (healthy() && !record_queue_.empty()) {",
                "replace",
                "while (!record_queue_.empty()) {",
            ),
            Edit(
                _TIMELINE,
                "std::this_thread::yield();",
                "replace",
                "std::this_thread::sleep_for(std::chrono::milliseconds(1));",
            ),
        ),
    ),
    Patch(
        "stateful-join",
        "TensorFlow takes join for a constant: from the second time on it returns the first answer at once, and the "
        "other ranks wait for ever.",
        (Edit(_TENSORFLOW_OPS, 'REGISTER_OP("HorovodJoin")', "after", "    .SetIsStateful()"),),
    ),
    Patch(
        "run-arguments",
        "Stray commas make horovod.run export cycle time and cache capacity as '(None,)': cycle time 0, cache off.",
        (
            Edit(_RUNNER, "self.cycle_time_ms = None,", "replace", "self.cycle_time_ms = None"),
            Edit(_RUNNER, "self.cache_capacity = None,", "replace", "self.cache_capacity = None"),
        ),
    ),
    Patch(
        "light-launcher",
        "horovodrun imports TensorFlow, twice, to learn whether Horovod was built with MPI or Gloo: seconds before the "
        "first rank starts, and TensorFlow's log above the user's output.",
        LIGHT_EDITS,
    ),
    Patch(
        "elastic-hosts",
        "An elastic job that fits on one host waits 600 s for a second one without a word, as it does for slots.",
        ELASTIC_HOSTS_EDITS,
    ),
    Patch(
        "elastic-interrupts",
        "When check_host_updates() interrupts an elastic job that new hosts join, the steps since the last commit are "
        "repeated on weights that have them.",
        ELASTIC_INTERRUPTS_EDITS,
    ),
    Patch(
        "two-signals",
        "horovodrun waits for ever, and its ranks train on, when a second SIGTERM or Ctrl-C comes while it takes the "
        "first one.",
        TWO_SIGNALS_EDITS,
    ),
    Patch(
        "two-libraries",
        "In a process that has imported Horovod for PyTorch and for TensorFlow, init() of the one asks the other for "
        "the ranks, and virtual functions of the one that was loaded second are those of the first.",
        TWO_LIBRARIES_EDITS,
    ),
    Patch(
        "private-environment",
        "horovodrun puts the whole environment, tokens too, and the key of its own services on command lines, which "
        "ps shows to every user of the launching and of the ranks' hosts.",
        ENVIRONMENT_EDITS,
    ),
    Patch(
        "loopback-only",
        "Jobs on one host listen on all its interfaces, for requests that nobody checks and some of which are "
        "unpickled.",
        LOOPBACK_EDITS,
    ),
    Patch(
        "worker-environment",
        "Workers that Ray and Spark start do not have the driver's PACELINE_* variables: every setting is off without "
        "a word.",
        WORKER_ENVIRONMENT_EDITS,
    ),
    Patch(
        "ray-2",
        "Elastic jobs on Ray 2 end with \"module 'ray' has no attribute 'state'\", and every worker warns of a call "
        "that Ray will remove.",
        RAY_2_EDITS,
    ),
    Patch(
        "ray-lost-worker",
        "A worker of Ray that dies is named by the number of its process: which rank it was, nothing says.",
        LOST_WORKER_EDITS,
    ),
    Patch(
        "zero-grad",
        "zero_grad(set_to_none=...) of a wrapped PyTorch optimizer is a TypeError.",
        tuple(
            Edit(_TORCH_OPTIMIZER, before, "replace", after, within=f"class {name}(torch.optim.Optimizer):")
            for name in ("_DistributedOptimizer", "_DistributedAdasumOptimizer")
            for before, after in (
                ("def zero_grad(self):", "def zero_grad(self, *args, **kwargs):"),
                (
                    "return super(self.__class__, self).zero_grad()",
                    "return super(self.__class__, self).zero_grad(*args, **kwargs)",
                ),
            )
        ),
    ),
    Patch(
        "distutils",
        "Python 3.12 has no distutils: neither the PyTorch part nor jsrun support works there.",
        (
            Edit(
                "horovod/torch/CMakeLists.txt",
                'execute_process(COMMAND ${PY_EXE} -c "from distutils.sysconfig import get_python_inc; '
                'print(get_python_inc())"',
                "replace",
                "execute_process(COMMAND ${PY_EXE} -c \"import sysconfig; print(sysconfig.get_path('include'))\"",
            ),
            Edit(
                "horovod/runner/js_run.py",
                "from distutils.spawn import find_executable",
                "replace",
                "from shutil import which as find_executable",
            ),
        ),
    ),
    Patch(
        "keras3",
        "Under Keras 3 gradients are not averaged at all, and callbacks, elastic state and batch normalisation fail.",
        KERAS3_EDITS,
    ),
    Patch(
        "settings-again",
        "Settings outlive shutdown(): at the next init() HOROVOD_CYCLE_TIME alone becomes the fusion limit, together "
        "with HOROVOD_FUSION_THRESHOLD it ends the process (exit 139), and a setting that is gone stays in force.",
        (
            Edit(
                _OPERATIONS,
                "state.parameter_manager.SetTensorFusionThresholdBytes(128 * 1024 * 1024);",
                "before",
                # Replaced in place, because controllers refer to it. No other thread uses it before the end of init().
                "state.parameter_manager.~ParameterManager();\nnew (&state.parameter_manager) ParameterManager();",
                within=_INITIALIZE,
            ),
        ),
    ),
    Patch(
        "large-messages",
        "With HOROVOD_FUSION_THRESHOLD above 2 GiB messages can have more elements than an int counts: they crash.",
        (
            Edit(
                _CONTROLLER,
                "parameter_manager_.TensorFusionThresholdBytes();",
                "after",
                # Leave room for the rounding up below.
                "proposed_fusion_threshold =\n"
                "    std::min(proposed_fusion_threshold, (int64_t{1} << 31) - (int64_t{1} << 20));",
                within="int64_t Controller::TensorFusionThresholdBytes() {",
            ),
        ),
    ),
)

# Not faults: calls of Paceline from Horovod's Python code when a world begins or ends, functions that an exchange
# replaces, and prerequisites of patches.
GLUE: tuple[Edit, ...] = (
    # Otherwise PyTorch's CUDA build and any nvcc on PATH would make the library use CUDA (paceline.cmake).
    Edit(
        "cmake/Modules/FindPytorch.cmake",
        'string(TOUPPER "${Pytorch_ROCM}" Pytorch_ROCM)',
        "after",
        "if(PACELINE_WITHOUT_GPU)\n  set(Pytorch_CUDA FALSE)\n  set(Pytorch_ROCM FALSE)\nendif()",
    ),
    # g++ 13 and newer need these includes, because their headers include fewer others.
    Edit("horovod/common/group_table.h", "#include <mutex>", "before", "#include <cstdint>"),
    Edit("horovod/common/group_table.h", "#include <queue>", "after", "#include <string>"),
    Edit(
        _OPERATIONS,
        "return NOT_INITIALIZED_ERROR;",
        "replace",
        "return Status::PreconditionError(\n"
        '    "Horovod has not been initialized; use hvd.init(). After hvd.shutdown() an optimizer, a tape and fit() '
        'need "\n'
        '    "another hvd.init(), or call hvd.shutdown() behind them.");',
        within="Status CheckInitialized() {",
    ),
    *LIFECYCLE_EDITS,
    *(Edit(file, function, "before", _OURS_IF_ASKED) for file, function in _WRAPPERS),
    Edit(_OPERATIONS, '#include "utils/env_parser.h"', "after", '#include "bridge/patches.h"'),
    Edit(
        _OPERATIONS,
        "horovod_global.control_operation = ParseControllerOpsFromEnv();",
        "before",
        "::horovod::paceline::Initializing();",
    ),
)
