// A stand-in for NCCL between the threads of a process, as far as the transport over it uses it: communicators of two
// ranks that do not block. A send keeps its stream until the other end receives; ends are matched in order alone. What
// NCCL forbids (calls while it is busy, ends of different lengths) ends the process.

#ifndef INTEGRATION_TESTS_NCCL_NCCL_H
#define INTEGRATION_TESTS_NCCL_NCCL_H

#include <cstddef>

#include "cuda_runtime.h"

#define NCCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 14, 0)
#define NCCL_CONFIG_INITIALIZER {1}

enum ncclResult_t { ncclSuccess = 0, ncclInternalError = 3, ncclInProgress = 7 };
enum ncclDataType_t { ncclUint8 = 1 };
using ncclComm_t = struct StandInComm*;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};

const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclCommAbort(ncclComm_t comm);

#endif  // INTEGRATION_TESTS_NCCL_NCCL_H
