"""Edits of the table of PyTorch operations under way: waiting for one, and telling that one is done."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_HANDLES = "horovod/torch/handle_manager"
_OPERATIONS = "horovod/common/operations.cc"
_TORCH_OPS = "horovod/torch/mpi_ops_v2.cc"
_FORKED = '#include "bridge/failure/forked.h"'

IDLE_WAITING_EDITS = (
    Edit(_HANDLES + ".h", "#include <atomic>", "after", "#include <chrono>\n#include <condition_variable>"),
    Edit(
        _HANDLES + ".h",
        "bool PollHandle(int handle);",
        "after",
        "void WaitHandle(int handle, std::chrono::milliseconds limit);",
    ),
    Edit(_HANDLES + ".h", "std::mutex mutex_;", "after", "std::condition_variable done_;"),
    Edit(
        _HANDLES + ".cc",
        "bool HandleManager::PollHandle(int handle) {",
        "before",
        "// Until the handle is done or gone, and no longer than `limit`.\n"
        "void HandleManager::WaitHandle(int handle, std::chrono::milliseconds limit) {\n"
        "  std::unique_lock<std::mutex> lock(mutex_);\n"
        "  done_.wait_for(lock, limit, [&] {\n"
        "    const auto found = results_.find(handle);\n"
        "    return found == results_.end() || found->second != nullptr;\n"
        "  });\n"
        "}\n",
    ),
    Edit(
        _HANDLES + ".cc",
        "results_[handle] = std::make_shared<Status>(status);",
        "after",
        "done_.notify_all();",
    ),
    Edit(_HANDLES + ".cc", "results_.clear();", "after", "done_.notify_all();"),
    Edit(
        _TORCH_OPS,
        "std::this_thread::yield();",
        "replace",
        "handle_manager.WaitHandle(handle, std::chrono::milliseconds(1000));",
        within="void WaitAndClear(int handle) {",
    ),
)

FORKED_OPERATION_EDITS = (
    Edit(_OPERATIONS, '#include "operations.h"', "after", _FORKED),
    Edit(
        _OPERATIONS,
        "return Status::OK();",
        "replace",
        "return ::horovod::paceline::CheckProcess();",
        within="Status CheckInitialized() {",
    ),
    # Of an operation that the rank has begun.
    Edit(_TORCH_OPS, '#include "handle_manager.h"', "after", _FORKED),
    Edit(
        _TORCH_OPS,
        "while (true) {",
        "before",
        "ThrowIfError(::horovod::paceline::CheckProcess());",
        within="void WaitAndClear(int handle) {",
    ),
)

FORKED_CHILD_EDITS = (
    Edit(_HANDLES + ".cc", '#include "handle_manager.h"', "after", "#include <Python.h>"),
    Edit(
        _HANDLES + ".cc",
        "void HandleManager::MarkDone(int handle, const Status& status) {",
        "before",
        "namespace {\n"
        "// A thread that Python knows once and for all changes nothing in the list of threads later.\n"
        "void StayInPython() {\n"
        "  if (Py_IsInitialized() != 0 && PyGILState_GetThisThreadState() == nullptr) {\n"
        "    PyGILState_Ensure();\n"
        "    PyEval_SaveThread();\n"
        "  }\n"
        "}\n"
        "} // namespace\n",
    ),
    Edit(
        _HANDLES + ".cc",
        "void HandleManager::MarkDone(int handle, const Status& status) {",
        "after",
        "  StayInPython();",
    ),
)
