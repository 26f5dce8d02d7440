// One direction between two ranks over NCCL.

#ifndef PACELINE_BRIDGE_TRANSPORT_NCCL_LANE_H
#define PACELINE_BRIDGE_TRANSPORT_NCCL_LANE_H

#if HAVE_NCCL && HAVE_CUDA
#include <nccl.h>
// Calls that do not block, so that limits hold, came with 2.14.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
#define PACELINE_HAVE_NCCL 1
#endif
#endif

#if PACELINE_HAVE_NCCL

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "bridge/transport.h"

namespace horovod::paceline {

// A communicator of two ranks and a stream. NCCL performs what is put on one stream, and what belongs to one
// communicator, in the order of calls, whatever it is: with one of them for several peers, or for both directions, a
// receive whose sender comes later would keep back a send that this sender waits for. A lane has the sends of one rank
// to another, or that one's receives, and both launch them in one order: nothing waits but for its own other half.
//
//   state     means                                                  ends
//   busy      NCCL makes the communicator, or launches an operation  NCCL says that it is done, or failed
//   ready     the next operation may be launched                     it is
//   failed    nothing can travel: NCCL failed, or it was given up    never
//
// One thread.
class NcclLane {
 public:
  enum class End : uint8_t { kSends, kReceives };

  // Begins to connect with the other end, which names the same `id`; returns at once. `device`: that of all data.
  NcclLane(int device, End end, const ncclUniqueId& id);
  // Waits until no kernel touches the memory of operations.
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;
  NcclLane(NcclLane&&) = delete;
  NcclLane& operator=(NcclLane&&) = delete;

  // The next operation, in the order of the other end. `data` is on the device, and no stream writes into it any more.
  void Queue(uint64_t operation, void* data, size_t bytes);
  bool idle() const { return queued_.empty() && launched_.empty(); }

  // Launches what can be, and appends what has ended.
  void Progress(std::deque<Completion>& ended);
  // Ends what is under way, with an error.
  void Abort(const std::string& why);

 private:
  enum class State : uint8_t { kBusy, kReady, kFailed };
  struct Operation {
    uint64_t number = 0;
    void* data = nullptr;
    size_t bytes = 0;
    cudaEvent_t over = nullptr;  // recorded behind it on the stream
  };

  void Look();
  void Launch();
  // Puts the event behind the operation that NCCL has launched.
  void Mark();
  // What a call of CUDA or NCCL answered; false if the lane has failed.
  bool Good(cudaError_t result, const char* call);
  bool Good(ncclResult_t result, const char* call);

  const int device_;
  const End end_;
  State state_ = State::kBusy;
  std::string error_;
  cudaStream_t stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
  bool launching_ = false;  // the last of `launched_`, which has no event yet
  std::deque<Operation> queued_, launched_;
};

// "" for success.
std::string NcclText(ncclResult_t result, const char* call);

}  // namespace horovod::paceline

#endif  // PACELINE_HAVE_NCCL

#endif  // PACELINE_BRIDGE_TRANSPORT_NCCL_LANE_H
