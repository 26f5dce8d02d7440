// C entry points of communicators, called by plugin/native/communicator.py through ctypes.

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

// Throws std::invalid_argument if the communicator was closed, maybe by another thread.
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

// Opens a communicator among the ranks of a process set. Returns its number, and sets this rank in the set, the size of
// the set and Horovod's timeout; or returns -1 with the reason in `error`. Not collective.
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

// All following functions need an open communicator. Send and receive return the number of an operation, or -1 if the
// communicator has failed.
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

// Waits for an operation, at most `limit_s`. Returns 1 if it is done, 0 if it is in flight, -1 if the communicator has
// failed. After 1 and -1 its memory is not accessed any more.
int64_t horovod_paceline_communicator_wait(int64_t communicator, int64_t operation, double limit_s) try {
  return Number(Opened(communicator)->Wait(operation, limit_s));
}
PACELINE_CATCH(-1)

// Aborts after a timeout: the operation did not end within `limit_s`. The communicator fails.
void horovod_paceline_communicator_abort(int64_t communicator, int64_t operation, double limit_s) try {
  Opened(communicator)->Abort(operation, limit_s);
}
PACELINE_CATCH()

// Sends a failure notice with `text` to all ranks. The communicator fails.
void horovod_paceline_communicator_notify_failure(int64_t communicator, const char* text) try {
  Opened(communicator)->NotifyFailure(text);
}
PACELINE_CATCH()

// Writes the reason of the failure to `why`. Returns 1 after a shutdown of Horovod, 0 after an error.
int64_t horovod_paceline_communicator_why(int64_t communicator, char* why, int64_t capacity) try {
  const auto found = Opened(communicator);
  CopyText(found->Why(), why, capacity);
  return found->ShutDown() ? 1 : 0;
}
PACELINE_CATCH(-1)

// Closes the communicator; its number becomes invalid. Messages in flight are aborted, which all ranks are notified of.
void horovod_paceline_communicator_close(int64_t communicator) try { Get<StageCommunicators>().Close(communicator); }
PACELINE_CATCH()
}
