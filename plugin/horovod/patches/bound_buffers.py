"""Edits for Gloo's bound buffers on a connection with other messages.

Gloo's reduce-scatter assumes an idle connection, where the kernel has all bytes when a send returns. With Paceline's
messages in flight, a send is queued, and reads its memory later.
"""

from __future__ import annotations

from paceline.horovod.edits import Edit

# Horovod's CMakeLists.txt copies this file for TensorFlow (compatible17_gloo).
_REDUCE_SCATTER = "third_party/gloo/gloo/reduce_scatter.h"
_PAIR = "third_party/gloo/gloo/transport/tcp/pair.cc"

BOUND_BUFFERS: tuple[Edit, ...] = (
    Edit(
        _REDUCE_SCATTER,
        "int index = 0;",
        "before",
        "// Sends that read from the memory of the result.\nstd::vector<transport::Buffer*> sent;\n"
        "for (int i = 0; i < stepsWithinBlock_; i++) {\n"
        "  if (sendOffsets_[i] < count_) {\n"
        "    sent.push_back(sendDataBufs_[i].get());\n"
        "  }\n"
        "}\n"
        "if (nextLargerBlockSize_ != 0) {\n"
        "  for (size_t i = 0; i < largerBlockSendDataBufs_.size() && sendCountToLargerBlock_ * i < totalItemsToSend;\n"
        "       i++) {\n"
        "    sent.push_back(largerBlockSendDataBufs_[i].get());\n"
        "  }\n"
        "}\n",
    ),
    # The result overwrites the memory of the sends.
    Edit(
        _REDUCE_SCATTER,
        "bufferOffset = 0;",
        "after",
        "for (auto& buffer : distSendDataBufs_) {\n"
        "  sent.push_back(buffer.get());\n"
        "}\n"
        "for (auto* buffer : sent) {\n"
        "  buffer->waitSend();\n"
        "}",
    ),
    # The memory of the last sends is freed at the end of the algorithm.
    Edit(
        _REDUCE_SCATTER,
        "for (auto& recvNotificationBuf : recvNotificationBufs_) {",
        "before",
        "for (auto& sendNotificationBuf : sendNotificationBufs_) {\n  sendNotificationBuf->waitSend();\n}",
    ),
    # If an error ends an algorithm, queued sends and receives in progress would access freed memory.
    Edit(
        _PAIR,
        "buffers_.erase(buf->slot_);",
        "after",
        "bool inFlight = rx_.buf == buf;\n"
        "for (auto& op : tx_) {\n"
        "  inFlight = inFlight || op.buf == buf;\n"
        "}\n"
        "if (inFlight) {\n"
        "  if (ex_ == nullptr) {\n"
        '    signalException(GLOO_ERROR_MSG("A message was given up ", peer_.str()));\n'
        "  }\n"
        "  for (auto& op : tx_) {\n"
        "    op.buf = op.buf == buf ? nullptr : op.buf;\n"
        "  }\n"
        "  rx_.buf = rx_.buf == buf ? nullptr : rx_.buf;\n"
        "}",
        within="void Pair::unregisterBuffer(Buffer* buf) {",
    ),
)
