#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "nccl.h"

namespace {

[[noreturn]] void Misused(const char* how) {
  std::fprintf(stderr, "NCCL's stand-in was misused: %s\n", how);
  std::abort();
}

}  // namespace

struct StandInStream {
  std::mutex mutex;  // protects what follows
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool busy = false, ends = false;
  std::thread thread{[this] { Run(); }};

  void Run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ends || !tasks.empty(); });
      if (tasks.empty()) {
        return;
      }
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      task();
      lock.lock();
      busy = false;
      changed.notify_all();
    }
  }
  void Put(std::function<void()> task) {
    const std::lock_guard<std::mutex> lock(mutex);
    tasks.push_back(std::move(task));
    changed.notify_all();
  }
};

struct StandInEvent {
  std::shared_ptr<std::atomic<bool>> done = std::make_shared<std::atomic<bool>>(true);
};

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "invalid device" : "not ready";
}
cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new StandInStream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::unique_lock<std::mutex> lock(stream->mutex);
  stream->changed.wait(lock, [stream] { return stream->tasks.empty() && !stream->busy; });
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard<std::mutex> lock(stream->mutex);
    stream->ends = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new StandInEvent;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->done = std::make_shared<std::atomic<bool>>(false);
  stream->Put([done = event->done] { *done = true; });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return *event->done ? cudaSuccess : cudaErrorNotReady; }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

namespace {

// What the two ends of a communicator share.
struct Meeting {
  std::mutex mutex;  // protects what follows
  std::condition_variable changed;
  int joined = 0;
  bool offered = false, taken = false;
  const void* data = nullptr;
  size_t bytes = 0;
};

std::shared_ptr<Meeting> MeetingOf(const ncclUniqueId& id) {
  static std::mutex mutex;
  static std::map<uint64_t, std::shared_ptr<Meeting>> all;
  uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof(number));
  const std::lock_guard<std::mutex> lock(mutex);
  auto& meeting = all[number];
  if (meeting == nullptr) {
    meeting = std::make_shared<Meeting>();
  }
  return meeting;
}

}  // namespace

struct StandInComm {
  std::shared_ptr<Meeting> meeting;
  // Outlives the communicator: kernels look at it.
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
  int busy = 0;   // so often it says that it is
  int calls = 0;  // of which every third leaves it busy

  ncclResult_t Call() {
    if (busy > 0) {
      Misused("a call while it was busy");
    }
    busy = ++calls % 3 == 0 ? 2 : 0;
    return busy > 0 ? ncclInProgress : ncclSuccess;
  }
};

const char* ncclGetErrorString(ncclResult_t) { return "internal error"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<uint64_t> count{0};
  const uint64_t number = ++count;
  std::memcpy(id->internal, &number, sizeof(number));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (ranks != 2 || rank < 0 || rank > 1 || config->blocking != 0) {
    Misused("a communicator that is no lane's");
  }
  *comm = new StandInComm{MeetingOf(id)};
  const std::lock_guard<std::mutex> lock((*comm)->meeting->mutex);
  ++(*comm)->meeting->joined;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard<std::mutex> lock(comm->meeting->mutex);
  *state = comm->meeting->joined < 2 || comm->busy > 0 ? ncclInProgress : ncclSuccess;
  comm->busy -= comm->busy > 0 ? 1 : 0;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (peer != 1) {
    Misused("a send to itself");
  }
  stream->Put([data, count, meeting = comm->meeting, aborted = comm->aborted] {
    std::unique_lock<std::mutex> lock(meeting->mutex);
    meeting->data = data;
    meeting->bytes = count;
    meeting->taken = false;
    meeting->offered = true;
    meeting->changed.notify_all();
    meeting->changed.wait(lock, [&] { return meeting->taken || *aborted; });
    meeting->offered = false;
  });
  return comm->Call();
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (peer != 0) {
    Misused("a receive from itself");
  }
  stream->Put([data, count, meeting = comm->meeting, aborted = comm->aborted] {
    std::unique_lock<std::mutex> lock(meeting->mutex);
    meeting->changed.wait(lock, [&] { return (meeting->offered && !meeting->taken) || *aborted; });
    if (*aborted) {
      return;
    }
    if (meeting->bytes != count) {
      Misused("ends of different lengths");
    }
    if (count > 0) {
      std::memcpy(data, meeting->data, count);
    }
    meeting->taken = true;
    meeting->changed.notify_all();
  });
  return comm->Call();
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard<std::mutex> lock(comm->meeting->mutex);
    *comm->aborted = true;
    comm->meeting->changed.notify_all();
  }
  delete comm;
  return ncclSuccess;
}
