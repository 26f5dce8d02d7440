"""Edits that end a world at once, on every rank and with the reason (plugin/bridge/failure/failure.h)."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_CALL = "::horovod::paceline::"
_INCLUDE = '#include "bridge/failure/failure.h"'

_BASICS = "horovod/common/basics.py"
_GLOO_CONTEXT = "horovod/common/gloo/gloo_context.cc"
_HTTP_STORE = "horovod/common/gloo/http_store.cc"
_OPERATIONS = "horovod/common/operations.cc"
_PAIR = "third_party/gloo/gloo/transport/tcp/pair.cc"
_PROCESS_SET = "horovod/common/process_set.cc"
_PROCESS_SETS = "horovod/common/process_sets.py"
_TENSOR_QUEUE = "horovod/common/tensor_queue"

_LOOP = "void BackgroundThreadLoop(HorovodGlobalState& state) {"
_FINALIZE = "void ProcessSetTable::Finalize_(const Context& context, const Status& status) {"
_INITIALIZE = tuple(
    f"bool ProcessSet::Initialize(const {kind}Context& global_{kind.lower()}_context) {{" for kind in ("MPI", "Gloo")
)

# Every function that submits an operation.
_ENQUEUES = (
    "EnqueueTensorAllreduces(std::vector<std::shared_ptr<OpContext>>& contexts,",
    "EnqueueTensorAllgathers(std::vector<std::shared_ptr<OpContext>>& contexts,",
    "Status EnqueueTensorBroadcast(std::shared_ptr<OpContext> context,",
    "EnqueueTensorReducescatters(std::vector<std::shared_ptr<OpContext>>& contexts,",
    "Status EnqueueTensorAlltoall(std::shared_ptr<OpContext> context,",
    "Status EnqueueJoin(std::shared_ptr<OpContext> context,",
    "Status EnqueueBarrier(StatusCallback callback, int32_t process_set_id) {",
)
_ADDS = (
    "Status TensorQueue::AddToTensorQueue(TensorTableEntry& e, Request& message) {",
    "Status TensorQueue::AddToTensorQueueMulti(std::vector<TensorTableEntry>& entries,",
)
_ANSWER_ALL = "void TensorQueue::FinalizeTensorQueue(const Status& status) {"

DEAD_RANK: tuple[Edit, ...] = (
    # Gloo: report the end of a pair to all waiting buffers, including those in the middle of a message.
    Edit(
        _PAIR,
        "// Loop through pending send operations.",
        "before",
        "// And the operations that have begun: being sent, and being received.\n"
        "for (auto& op : tx_) {\n"
        "  NonOwningPtr<UnboundBuffer> buf(op.ubuf);\n"
        "  if (buf) {\n"
        "    buf->signalException(ex);\n"
        "  }\n"
        "}\n"
        "NonOwningPtr<UnboundBuffer> receiving(rx_.ubuf);\n"
        "if (receiving) {\n"
        "  receiving->signalException(ex);\n"
        "}\n",
    ),
    Edit(
        _PAIR,
        "changeState(CLOSED);",
        "before",
        "if (ex_ == nullptr) {\n"
        '  signalException(GLOO_ERROR_MSG("Connection closed by this rank ", peer_.str()));\n'
        "  return;\n"
        "}",
        within="void Pair::close() {",
    ),
    # What Gloo's thread throws would end the process.
    Edit(
        _PAIR,
        "handleReadWrite(events);",
        "replace",
        "try {\n"
        "  handleReadWrite(events);\n"
        "} catch (const std::exception& error) {\n"
        "  if (ex_ == nullptr) {\n"
        "    signalException(error.what());\n"
        "  }\n"
        "}",
    ),
    # Register all connections; one from each rank to rank 0 is for liveness.
    Edit(_GLOO_CONTEXT, '#include "memory_store.h"', "after", _INCLUDE),
    Edit(_GLOO_CONTEXT, "context->connectFullMesh(*store, dev);", "after", f"{_CALL}Connected(context);"),
    Edit(
        _GLOO_CONTEXT,
        'LOG(DEBUG) << "Cross-node Gloo context initialized.";',
        "after",
        f"{_CALL}Watch(ctx);",
        within="void GlooContext::Initialize(const std::string& gloo_iface) {",
    ),
    Edit(_HTTP_STORE, '#include "gloo_context.h"', "after", _INCLUDE),
    Edit(_HTTP_STORE, "while (!CheckKeys(keys)) {", "after", f"  {_CALL}ThrowIfFailed();"),
    # The end of the background thread ends the world.
    Edit(_OPERATIONS, '#include "utils/env_parser.h"', "after", _INCLUDE),
    Edit(
        _OPERATIONS,
        '<< "Horovod background loop uncaught exception: " << ex.what();',
        "after",
        f"{_CALL}Fail(ex);",
        within=_LOOP,
    ),
    Edit(
        _OPERATIONS,
        "status = Status::UnknownError(ex.what());",
        "replace",
        f"status = Status::UnknownError({_CALL}Explain(ex));",
        within="void PerformOperation(Response response, ProcessSet& process_set) {",
    ),
    # Operations that end with the world, or are submitted later, get the reason.
    Edit(_PROCESS_SET, '#include "controller.h"', "before", _INCLUDE),
    Edit(
        _PROCESS_SET,
        "id_to_process_set_[0].Finalize(status);",
        "replace",
        f"id_to_process_set_[0].Finalize({_CALL}Ended(status));\n{_CALL}EndWatch();",
        within=_FINALIZE,
    ),
    *(
        Edit(_OPERATIONS, "return SHUT_DOWN_ERROR;", "replace", f"return {_CALL}Ended(SHUT_DOWN_ERROR);", within=one)
        for one in _ENQUEUES
    ),
    # An operation submitted while the last ones are being answered would never get an answer.
    Edit(_TENSOR_QUEUE + ".cc", '#include "logging.h"', "after", _INCLUDE),
    Edit(_TENSOR_QUEUE + ".h", "void FinalizeTensorQueue(const Status& status);", "after",
         "// For a new world.\nvoid Open();"),
    Edit(_TENSOR_QUEUE + ".h", "mutable std::mutex mutex_;", "after",
         "// Nobody answers what is added now.\nbool closed_ = false;"),
    *(
        Edit(
            _TENSOR_QUEUE + ".cc",
            "std::lock_guard<std::mutex> guard(mutex_);",
            "after",
            f"if (closed_) {{\n  return {_CALL}Ended(SHUT_DOWN_ERROR);\n}}",
            within=one,
        )
        for one in _ADDS
    ),
    # Release tensors without holding a lock: PyTorch may need the interpreter's lock for that, whose holder may be
    # submitting an operation and wait for the queue's lock.
    Edit(
        _TENSOR_QUEUE + ".cc",
        "std::lock_guard<std::mutex> guard(mutex_);",
        "replace",
        "decltype(tensor_table_) last;\n"
        "{\n"
        "  std::lock_guard<std::mutex> guard(mutex_);\n"
        "  closed_ = true;\n"
        "  last.swap(tensor_table_);\n"
        "}",
        within=_ANSWER_ALL,
    ),
    Edit(
        _TENSOR_QUEUE + ".cc",
        "for (auto& e : tensor_table_) {",
        "replace",
        "for (auto& e : last) {",
        within=_ANSWER_ALL,
    ),
    Edit(
        _TENSOR_QUEUE + ".cc",
        "tensor_table_.clear();",
        "replace",
        "last.clear();\nstd::lock_guard<std::mutex> guard(mutex_);",
        within=_ANSWER_ALL,
    ),
    Edit(
        _OPERATIONS,
        "// For each process set: Notify all outstanding operations that Horovod has",
        "before",
        "for (auto id : state.process_set_table.Ids()) {\n"
        "  state.process_set_table.Get(id).tensor_queue.FinalizeTensorQueue(\n"
        f"      {_CALL}Ended(SHUT_DOWN_ERROR));\n"
        "}\n",
        within=_LOOP,
    ),
    Edit(
        _PROCESS_SET,
        "id_to_process_set_[id_to_be_removed_].Finalize(removal_status);",
        "before",
        "auto& last = id_to_process_set_.at(id_to_be_removed_).tensor_queue;\n"
        "mutex.unlock();\n"
        "last.FinalizeTensorQueue(removal_status);\n"
        "mutex.lock();",
    ),
    Edit(
        _TENSOR_QUEUE + ".cc",
        "// Execute callback for each tensor and clear tensor queue",
        "before",
        "void TensorQueue::Open() {\n  std::lock_guard<std::mutex> guard(mutex_);\n  closed_ = false;\n}\n",
    ),
    *(
        Edit(_PROCESS_SET, "initialization_done = true;", "before", "tensor_queue.Open();", within=one)
        for one in _INITIALIZE
    ),
)  # fmt: skip

PROCESS_SETS: tuple[Edit, ...] = (
    Edit(_OPERATIONS, '#include "utils/env_parser.h"', "after", _INCLUDE),
    Edit(
        _OPERATIONS,
        '<< "Horovod could not be initialized: " << ex.what();',
        "after",
        f"{_CALL}Fail(ex);",
        within=_LOOP,
    ),
    Edit(
        _OPERATIONS,
        "int32_t initialized_count = 0;",
        "before",
        "#if HAVE_GLOO\n"
        "if (state.control_operation == LibType::GLOO) {\n"
        f"  {_CALL}CheckSameNumber(global_gloo_context.ctx, (int)state.process_set_table.Ids().size() - 1);\n"
        "}\n"
        "#endif // HAVE_GLOO",
        within=_LOOP,
    ),
    Edit(
        _OPERATIONS,
        "horovod_global.background_thread.join();",
        "after",
        "horovod_global.process_set_table.Clear();",
        within="void horovod_shutdown() {",
    ),
    Edit(_PROCESS_SET, '#include "controller.h"', "before", _INCLUDE),
    Edit(
        _PROCESS_SET,
        "std::vector<int> buf(size);",
        "before",
        f"{_CALL}CheckSameRanks(global_gloo_context.ctx, registered_global_ranks);",
        within=_INITIALIZE[1],
    ),
    # Sets are removed by agreement of all ranks. After the end of the world they stay until the background thread has
    # ended, because other threads may use them.
    Edit(
        _PROCESS_SET,
        "MarkProcessSetForRemoval(id);",
        "before",
        f"if ({_CALL}HasFailed()) {{\n  Get(id).Finalize({_CALL}Ended(status));\n  continue;\n}}",
        within=_FINALIZE,
    ),
    Edit(
        _PROCESS_SET,
        "InitializeRegisteredAndRemoveMarkedIfReady_(context, status);",
        "replace",
        f"if (!{_CALL}Together([&] {{ InitializeRegisteredAndRemoveMarkedIfReady_(context, status); }})) {{\n"
        f"  Get(id).Finalize({_CALL}Ended(status));\n"
        "  break;\n"
        "}",
        within=_FINALIZE,
    ),
    Edit(_PROCESS_SET, "next_id_ = 1;", "before", f"if ({_CALL}HasFailed()) {{\n  return;\n}}", within=_FINALIZE),
    Edit(
        _PROCESS_SET,
        "int32_t ProcessSetTable::RegisterProcessSet(std::vector<int> global_ranks) {",
        "before",
        "void ProcessSetTable::Clear() {\n"
        "  std::lock_guard<std::recursive_mutex> guard(mutex);\n"
        "  for (auto id : Ids()) {\n"
        "    if (id != 0) {\n"
        "      DeregisterProcessSet(id);\n"
        "    }\n"
        "  }\n"
        "  id_to_be_removed_ = NO_PENDING_REMOVAL;\n"
        "  next_id_ = 1;\n"
        "  free_ids_ = {};\n"
        "}\n",
    ),
    Edit(
        "horovod/common/process_set.h",
        "bool ProcessSetHasJustBeenRemoved();",
        "after",
        "\n// Forget all sets but the global one, without asking anybody.\nvoid Clear();",
    ),
    # In Python: refuse process sets that cannot be registered before they reach C++, and give the reason in errors.
    Edit(_BASICS, "nrank = len(ranks)", "before", "_paceline_glue.check_process_set(ranks, self.size())"),
    Edit(
        _PROCESS_SETS,
        "from horovod.common.util import is_iterable",
        "after",
        "from horovod._paceline import glue as _paceline_glue",
    ),
    Edit(
        _PROCESS_SETS,
        "process_set_id = _basics._add_process_set_impl(process_set.ranks)",
        "replace",
        "with _paceline_glue.explained(_basics.MPI_LIB_CTYPES):\n"
        "    process_set_id = _basics._add_process_set_impl(process_set.ranks)",
    ),
    Edit(
        _PROCESS_SETS,
        "returned_id = _basics._remove_process_set_impl(process_set_id)",
        "replace",
        "with _paceline_glue.explained(_basics.MPI_LIB_CTYPES):\n"
        "    returned_id = _basics._remove_process_set_impl(process_set_id)",
    ),
)

# The table has no ranks of a world that has ended; init() would ignore this.
ENDED_WORLD: tuple[Edit, ...] = (
    Edit(
        _BASICS,
        "ps_size = int(self.MPI_LIB_CTYPES.horovod_process_set_size(ctypes.c_int(ps_id)))",
        "before",
        "if ps_id == 0:\n    ret[0] = list(range(self.size()))\n    continue",
    ),
)
