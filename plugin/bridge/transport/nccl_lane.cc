#include "bridge/transport/nccl_lane.h"

#if PACELINE_HAVE_NCCL

#include <utility>

namespace horovod::paceline {

std::string NcclText(ncclResult_t result, const char* call) {
  return result == ncclSuccess ? "" : std::string(call) + ": " + ncclGetErrorString(result);
}

NcclLane::NcclLane(int device, End end, const ncclUniqueId& id) : device_(device), end_(end) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (Good(cudaSetDevice(device_), "cudaSetDevice") &&
      Good(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags")) {
    Good(ncclCommInitRankConfig(&comm_, 2, id, end_ == End::kSends ? 0 : 1, &config), "ncclCommInitRankConfig");
  }
}

NcclLane::~NcclLane() {
  Abort("the connection was ended");  // nothing is under way, or nobody wants it
  for (const auto& one : launched_) {
    if (one.over != nullptr) {
      cudaEventDestroy(one.over);
    }
  }
  if (stream_ != nullptr) {
    cudaStreamDestroy(stream_);
  }
}

bool NcclLane::Good(cudaError_t result, const char* call) {
  if (result != cudaSuccess) {
    Abort(std::string(call) + ": " + cudaGetErrorString(result));
  }
  return result == cudaSuccess;
}

bool NcclLane::Good(ncclResult_t result, const char* call) {
  if (result == ncclInProgress) {
    state_ = State::kBusy;
  } else if (result != ncclSuccess) {
    Abort(NcclText(result, call));
  }
  return state_ != State::kFailed;
}

void NcclLane::Abort(const std::string& why) {
  if (state_ == State::kFailed) {
    return;
  }
  state_ = State::kFailed;
  error_ = why;
  if (comm_ != nullptr) {
    ncclCommAbort(comm_);  // its kernels end
    comm_ = nullptr;
  }
  if (stream_ != nullptr) {
    cudaStreamSynchronize(stream_);
  }
}

void NcclLane::Queue(uint64_t operation, void* data, size_t bytes) { queued_.push_back({operation, data, bytes}); }

void NcclLane::Look() {
  auto state = ncclSuccess;
  if (!Good(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError") || state == ncclInProgress) {
    return;
  }
  if (Good(state, end_ == End::kSends ? "sending" : "receiving")) {
    state_ = State::kReady;
  }
}

void NcclLane::Launch() {
  auto next = queued_.front();
  queued_.pop_front();
  if (!Good(cudaEventCreateWithFlags(&next.over, cudaEventDisableTiming), "cudaEventCreateWithFlags")) {
    launched_.push_back(next);
    return;
  }
  launched_.push_back(next);
  launching_ = true;
  constexpr int kSender = 0, kReceiver = 1;
  if (end_ == End::kSends) {
    Good(ncclSend(next.data, next.bytes, ncclUint8, kReceiver, comm_, stream_), "ncclSend");
  } else {
    Good(ncclRecv(next.data, next.bytes, ncclUint8, kSender, comm_, stream_), "ncclRecv");
  }
}

void NcclLane::Mark() {
  launching_ = false;
  Good(cudaEventRecord(launched_.back().over, stream_), "cudaEventRecord");
}

void NcclLane::Progress(std::deque<Completion>& ended) {
  if (state_ != State::kFailed && !idle() && Good(cudaSetDevice(device_), "cudaSetDevice")) {
    Look();  // also what a kernel that runs has met
    while (state_ == State::kReady && (launching_ || !queued_.empty())) {
      if (launching_) {
        Mark();
      } else {
        Launch();
      }
    }
  }
  while (!launched_.empty() && !(launching_ && launched_.size() == 1) && state_ != State::kFailed) {
    const auto over = cudaEventQuery(launched_.front().over);
    if (over == cudaErrorNotReady || !Good(over, "cudaEventQuery")) {
      break;
    }
    cudaEventDestroy(launched_.front().over);
    ended.push_back({launched_.front().number, "", false});
    launched_.pop_front();
  }
  if (state_ == State::kFailed) {
    for (auto* operations : {&launched_, &queued_}) {
      for (const auto& one : *operations) {
        ended.push_back({one.number, error_, false});
        if (one.over != nullptr) {
          cudaEventDestroy(one.over);
        }
      }
      operations->clear();
    }
  }
}

}  // namespace horovod::paceline

#endif  // PACELINE_HAVE_NCCL
