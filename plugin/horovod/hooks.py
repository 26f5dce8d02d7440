"""The hook points: every place where Horovod's source calls Paceline, as one table of insertions.

`plugin/bridge/hooks.h` documents each call. All edits are insertions; a hook without work changes nothing.
"""

from __future__ import annotations

from paceline.horovod.edits import Edit

_CALL = "::horovod::paceline::"
_INCLUDE = '#include "bridge/hooks.h"'
_WAKING = '#include "bridge/waking.h"'

_CONTROLLER = "horovod/common/controller.cc"
_OPERATIONS = "horovod/common/operations.cc"
_TENSOR_QUEUE = "horovod/common/tensor_queue.h"
_QUEUE = "horovod/common/tensor_queue.cc"
_RESPONSE_CACHE = "horovod/common/response_cache.cc"
_PROCESS_SET = "horovod/common/process_set.cc"
_TORCH_OPS = "horovod/torch/mpi_ops_v2.cc"
_GLOO_BUFFER = "third_party/gloo/gloo/transport/unbound_buffer.h"
_GLOO_TCP_PAIR = "third_party/gloo/gloo/transport/tcp/pair.cc"
_GLOO_TCP_BUFFER = "third_party/gloo/gloo/transport/tcp/unbound_buffer.cc"

HOOKS: dict[str, tuple[Edit, ...]] = {
    "include": (
        Edit(_CONTROLLER, '#include "global_state.h"', "after", _INCLUDE),
        Edit(_OPERATIONS, '#include "operations.h"', "after", _INCLUDE),
    ),
    "all_connected": (
        Edit(
            _OPERATIONS,
            "int32_t initialized_count = 0;",
            "before",
            f"{_CALL}AllConnected(state);",
            within="void BackgroundThreadLoop(HorovodGlobalState& state) {",
        ),
    ),
    "enqueue": (
        Edit(
            _OPERATIONS,
            "std::vector<Request> messages;",
            "before",
            f"if ({_CALL}Enqueue(process_set, contexts, tensors, outputs, ready_event_lists, names, device,\n"
            "      callbacks, reduce_op, prescale_factor, postscale_factor, process_set_id, status)) {\n"
            "  return status;\n"
            "}",
            within="EnqueueTensorAllreduces(std::vector<std::shared_ptr<OpContext>>& contexts,",
        ),
    ),
    "popped": (
        Edit(
            _CONTROLLER,
            "tensor_queue_.PopMessagesFromQueue(message_queue_tmp);",
            "after",
            f"{_CALL}Popped(process_set, message_queue_tmp);",
        ),
    ),
    "submitted": (
        Edit(
            _TENSOR_QUEUE,
            "protected:",
            "before",
            "std::vector<std::string> Submitted() const {\n"
            "  std::lock_guard<std::mutex> guard(mutex_);\n"
            "  std::vector<std::string> names;\n"
            "  for (const auto& entry : tensor_table_) {\n"
            "    names.push_back(entry.first);\n"
            "  }\n"
            "  return names;\n"
            "}\n",
        ),
    ),
    "queued": (
        Edit(_QUEUE, '#include "tensor_queue.h"', "after", _INCLUDE),
        *(
            # The number stays in an entry that was moved from. What PushMessageToQueue takes has no entry.
            Edit(_QUEUE, anchor, "after", f"{_CALL}Queued(message_queue_.back(), {process_set});", within=within)
            for anchor, process_set, within in (
                (
                    "message_queue_.push(std::move(message));",
                    "e.process_set_id",
                    "Status TensorQueue::AddToTensorQueue(TensorTableEntry& e, Request& message) {",
                ),
                (
                    "message_queue_.push(std::move(messages[i]));",
                    "entries[i].process_set_id",
                    "Status TensorQueue::AddToTensorQueueMulti(std::vector<TensorTableEntry>& entries,",
                ),
                (
                    "message_queue_.push(std::move(message));",
                    "-1",
                    "void TensorQueue::PushMessageToQueue(Request& message) {",
                ),
            )
        ),
    ),
    "override_ready": (
        Edit(
            _CONTROLLER,
            "bool ready_to_reduce = count == (size_ - joined_size);",
            "after",
            f"ready_to_reduce = {_CALL}OverrideReady(msg, count, ready_to_reduce);",
        ),
    ),
    "take_control_request": (
        Edit(
            _CONTROLLER,
            "bool reduce = IncrementTensorCount(message, process_set.joined_size);",
            "before",
            f"if ({_CALL}TakeControlRequest(message)) {{\n  continue;\n}}",
        ),
        Edit(
            _CONTROLLER,
            "auto& received_name = received_message.tensor_name();",
            "after",
            f"if ({_CALL}TakeControlRequest(received_message)) {{\n  continue;\n}}",
        ),
    ),
    "extra_ready_names": (
        Edit(
            _CONTROLLER,
            "// Check if tensors from previous ticks are ready to reduce after Joins.",
            "before",
            f"for (const auto& name : {_CALL}ExtraReadyNames()) {{\n"
            "  timeline_.NegotiateEnd(name);\n"
            "  ready_to_reduce.push_back(name);\n"
            "}",
        ),
    ),
    "owns_readiness": (
        Edit(
            _CONTROLLER,
            "int count = (int)table_iter.second.size();",
            "before",
            f"if ({_CALL}OwnsReadiness(table_iter.first)) {{\n  continue;\n}}",
        ),
    ),
    "fuse": (
        Edit(
            _CONTROLLER,
            "std::vector<int64_t> allgather_tensor_byte_sizes;",
            "before",
            f"{_CALL}Fuse(*this, responses, response_list);",
            within="void Controller::FuseResponses(std::deque<Response>& responses,",
        ),
    ),
    "cache": (
        Edit(
            _CONTROLLER,
            "response_cache_.put(response, tensor_queue_, process_set.joined);",
            "before",
            f"if ({_CALL}Cacheable(response))",
        ),
    ),
    "before_execute": (
        Edit(
            _OPERATIONS,
            "process_set.tensor_queue.GetTensorEntriesFromResponse(response, entries,",
            "before",
            f"{_CALL}BeforeExecute(response, process_set);",
            within="void PerformOperation(Response response, ProcessSet& process_set) {",
        ),
    ),
    "buffer": (
        Edit(
            _OPERATIONS,
            "process_set.controller->TensorFusionThresholdBytes(),",
            "before",
            f"{_CALL}BufferBytes(",
            within="void PerformOperation(Response response, ProcessSet& process_set) {",
        ),
        Edit(
            _OPERATIONS,
            "process_set.controller->TensorFusionThresholdBytes(),",
            "after",
            "response, entries, process_set, horovod_global.current_nccl_stream),",
            within="void PerformOperation(Response response, ProcessSet& process_set) {",
        ),
    ),
    "after_execute": (
        Edit(
            _OPERATIONS,
            "Status status;",
            "before",
            "const auto paceline_start = ::horovod::paceline::Clock::now();",
            within="void PerformOperation(Response response, ProcessSet& process_set) {",
        ),
        Edit(
            _OPERATIONS,
            "if (!status.in_progress()) {",
            "before",
            f"{_CALL}AfterExecute(process_set, response, entries, status, paceline_start);",
            within="void PerformOperation(Response response, ProcessSet& process_set) {",
        ),
    ),
    "round_performed": (
        Edit(
            _OPERATIONS,
            "should_shutdown |= response_list.shutdown();",
            "before",
            f"{_CALL}RoundPerformed(process_set);",
            within="bool RunLoopOnce(HorovodGlobalState& state) {",
        ),
    ),
    "cycle": (
        Edit(
            _OPERATIONS,
            "auto response_list =",
            "before",
            f"{_CALL}Cycle(state, process_set, process_set_id);",
            within="bool RunLoopOnce(HorovodGlobalState& state) {",
        ),
    ),
    "work_submitted": (
        Edit(_PROCESS_SET, '#include "process_set.h"', "after", _WAKING),
        Edit(_PROCESS_SET, "id_to_be_removed_ = process_set_id;", "after", f"{_CALL}NotifyWorkSubmitted();"),
    ),
    "registered_sets": (
        Edit(
            _PROCESS_SET,
            "global_controller.Allgather2Ints(pair_to_transmit, recv_buffer);",
            "after",
            f"{_CALL}RegisteredSets(recv_buffer);",
        ),
    ),
    "process_sets_change": tuple(
        Edit(
            _OPERATIONS,
            f"// Block until the background thread has {done} the process set.",
            "before",
            f"const {_CALL}ProcessSetsChange change;",
        )
        for done in ("initialized", "removed")
    ),
    "waited_for": (
        Edit(_TORCH_OPS, '#include "ready_event.h"', "after", _WAKING),
        Edit(
            _TORCH_OPS,
            "while (true) {",
            "before",
            f"if (!handle_manager.PollHandle(handle)) {{\n  {_CALL}NotifyWaitedFor();\n}}",
            within="void WaitAndClear(int handle) {",
        ),
        Edit(
            _OPERATIONS,
            "horovod_global.shut_down = true;",
            "after",
            f"{_CALL}NotifyWorkSubmitted();\n{_CALL}NotifyWaitedFor();",
            within="void horovod_shutdown() {",
        ),
    ),
    "sleep": (
        Edit(
            _OPERATIONS,
            "if (sleep_duration > std::chrono::steady_clock::duration::zero()) {",
            "before",
            f"if (!{_CALL}Sleep(state))",
            within="bool RunLoopOnce(HorovodGlobalState& state) {",
        ),
    ),
    # Not in the controllers' own methods, which are virtual: if both libraries are loaded, the virtual tables of both
    # refer to the methods of one.
    "bits": (
        Edit(_RESPONSE_CACHE, '#include "response_cache.h"', "after", _INCLUDE),
        *(
            Edit(
                _RESPONSE_CACHE,
                f"controller->CrossRankBitwise{name}(bitvector_, {count});",
                "before",
                f"if (!{_CALL}CombineBits(::paceline::core::BitOperation::k{name}, bitvector_, {count}))",
            )
            for name, count in (("And", "fullcount"), ("Or", "count"))
        ),
        Edit(_PROCESS_SET, '#include "process_set.h"', "after", _INCLUDE),
        Edit(
            _PROCESS_SET,
            "global_controller.Allgather2Ints(pair_to_transmit, recv_buffer);",
            "before",
            f"if (!{_CALL}GatherInts(pair_to_transmit, recv_buffer))",
        ),
    ),
    "texts": tuple(
        Edit(_CONTROLLER, anchor, "before", f"if (!{_CALL}{call})")
        for anchor, call in (
            ("RecvReadyTensors(ready_to_reduce, ready_list);", "GatherRequests(ready_list)"),
            ("SendFinalTensors(response_list);", "SendResponses(response_list)"),
            ("SendReadyTensors(message_list);", "SendRequests(message_list)"),
            ("RecvFinalTensors(response_list);", "ReceiveResponses(response_list)"),
        )
    ),
    "end": (
        Edit(
            _OPERATIONS,
            "shutdown:",
            "before",
            f"{_CALL}End();",
            within="void BackgroundThreadLoop(HorovodGlobalState& state) {",
        ),
    ),
    # Gloo can wait for one buffer only, so transports get a callback at the end of an operation.
    "on_completion": (
        Edit(
            _GLOO_BUFFER,
            "#include <cstdint>",
            "after",
            "#include <exception>\n#include <functional>\n#include <stdexcept>",
        ),
        Edit(
            _GLOO_BUFFER,
            "const size_t size;",
            "after",
            "// Called when an operation has completed (with nullptr) or failed, maybe more than once.\n"
            "std::function<void(const std::exception_ptr&)> on_completion;\n"
            "// What is sent, or expected, as a number: a message of ours that has another one is not received.\n"
            "uint64_t terms = 0;",
        ),
        *(
            Edit(
                _GLOO_TCP_BUFFER,
                anchor,
                "after",
                f"if (on_completion) {{\n  on_completion({error});\n}}",
                within=within,
            )
            for anchor, error, within in (
                ("recvRank_ = rank;", "nullptr", "void UnboundBuffer::handleRecvCompletion(int rank) {"),
                ("sendRank_ = rank;", "nullptr", "void UnboundBuffer::handleSendCompletion(int rank) {"),
                ("ex_ = std::move(ex);", "ex_", "void UnboundBuffer::signalException(std::exception_ptr ex) {"),
            )
        ),
    ),
    # A message of Paceline's that is longer than the receive buffer would end the process; a shorter one, or another
    # one of the same length, would be mistaken for the expected one. The receiver gets an error of a type that Gloo
    # does not use; all others see a closed connection. Gloo uses `roffset` of a header for bound buffers only.
    "lengths": (
        Edit(
            _GLOO_BUFFER,
            "// The unbound buffer class represents a chunk of memory.",
            "before",
            "class OtherMessage : public std::length_error {\n"
            " public:\n"
            "  OtherMessage(const std::string& why, uint64_t expected, uint64_t found)\n"
            "      : length_error(why), expected(expected), found(found) {}\n"
            "  const uint64_t expected, found;  // terms\n"
            "};\n",
        ),
        Edit(
            _GLOO_TCP_PAIR,
            "op.ubuf = std::move(buf);",
            "before",
            "if (const NonOwningPtr<UnboundBuffer> sent(buf); sent) {\n  op.preamble.roffset = sent->terms;\n}",
            within="void Pair::sendUnboundBuffer(",
        ),
        Edit(
            _GLOO_TCP_PAIR,
            "GLOO_ENFORCE_LE(op.preamble.length, op.nbytes);",
            "before",
            "if (op.preamble.slot >> 60 == 7 &&\n"
            "    (op.preamble.length != op.nbytes || op.preamble.roffset != buf->terms)) {\n"
            '  const auto why = ::gloo::MakeString("it sends ", op.preamble.length, " bytes where ", op.nbytes,\n'
            '                                      " were expected");\n'
            "  buf->signalException(\n"
            "      std::make_exception_ptr(::gloo::transport::OtherMessage(why, buf->terms, op.preamble.roffset)));\n"
            '  signalException(GLOO_ERROR_MSG(why, " ", peer_.str()));\n'
            "  return -1;\n"
            "}",
            within="ssize_t Pair::prepareRead(",
        ),
    ),
    "operations": (
        Edit(
            _OPERATIONS,
            "std::vector<std::shared_ptr<AlltoallOp>> alltoall_ops;",
            "after",
            f"{_CALL}AddOperations(state, allreduce_ops, broadcast_ops);",
            within="OperationManager* CreateOperationManager(HorovodGlobalState& state) {",
        ),
    ),
}
