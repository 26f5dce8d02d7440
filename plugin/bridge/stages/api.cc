// The C entry points of communicators, which plugin/native/communicator.py calls through ctypes.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "bridge/c_boundary.h"
#include "bridge/copy_text.h"
#include "bridge/participants.h"
#include "bridge/stages/stage_communicators.h"

using horovod::paceline::CopyText;
using horovod::paceline::Get;
using horovod::paceline::StageCommunicator;
using horovod::paceline::StageCommunicators;

namespace {

// Throws std::invalid_argument: it was closed, maybe by another thread.
std::shared_ptr<StageCommunicator> Opened(int64_t number) {
  auto communicator = Get<StageCommunicators>().Find(number);
  if (communicator == nullptr) {
    throw std::invalid_argument("Communicator " + std::to_string(number) + " is not open.");
  }
  return communicator;
}

int64_t Number(StageCommunicator::Outcome outcome) { return static_cast<int64_t>(outcome); }

}  // namespace

extern "C" {

// A communicator among the ranks of a process set: its number, and this rank's in the set, the set's size and Horovod's
// limit; -1 and in `error` why not. Not collective.
int64_t horovod_paceline_communicator_open(int32_t process_set, int32_t* rank, int32_t* size, double* limit_s,
                                           char* error, int64_t capacity) try {
  std::string why;
  const auto number = Get<StageCommunicators>().Open(process_set, why);
  if (number < 0) {
    CopyText(why, error, capacity);
    return number;
  }
  const auto communicator = Opened(number);
  *rank = communicator->rank();
  *size = communicator->size();
  *limit_s = communicator->limit_s();
  return number;
}
PACELINE_CATCH(-1, error, capacity)

// All that follow are about a communicator that was opened; they fail where it was closed. The number of an operation,
// or -1: the communicator has failed.
int64_t horovod_paceline_communicator_send(int64_t communicator, int32_t peer, int64_t tag, const void* data,
                                           int64_t bytes) try {
  return Opened(communicator)->Send(peer, static_cast<uint64_t>(tag), data, static_cast<size_t>(bytes));
}
PACELINE_CATCH(-1)

int64_t horovod_paceline_communicator_receive(int64_t communicator, int32_t peer, int64_t tag, void* data,
                                              int64_t bytes) try {
  return Opened(communicator)->Receive(peer, static_cast<uint64_t>(tag), data, static_cast<size_t>(bytes));
}
PACELINE_CATCH(-1)

// Waits for an operation, at most `limit_s`; 1: it is done, 0: not yet, -1: the communicator has failed. From 1 and -1
// on nobody touches its memory.
int64_t horovod_paceline_communicator_wait(int64_t communicator, int64_t operation, double limit_s) try {
  return Number(Opened(communicator)->Wait(operation, limit_s));
}
PACELINE_CATCH(-1)

// An operation was waited for in vain for so long: the communicator fails.
void horovod_paceline_communicator_abort(int64_t communicator, int64_t operation, double limit_s) try {
  Opened(communicator)->Abort(operation, limit_s);
}
PACELINE_CATCH()

// This rank cannot go on: all ranks hear why, and the communicator has failed.
void horovod_paceline_communicator_notify_failure(int64_t communicator, const char* text) try {
  Opened(communicator)->NotifyFailure(text);
}
PACELINE_CATCH()

// Why the communicator has failed. 1: because Horovod was shut down, 0: because something went wrong.
int64_t horovod_paceline_communicator_why(int64_t communicator, char* why, int64_t capacity) try {
  const auto found = Opened(communicator);
  CopyText(found->Why(), why, capacity);
  return found->ShutDown() ? 1 : 0;
}
PACELINE_CATCH(-1)

// Its number is nobody's from here on. What is in flight is given up, and all ranks hear of it.
void horovod_paceline_communicator_close(int64_t communicator) try { Get<StageCommunicators>().Close(communicator); }
PACELINE_CATCH()
}
