// A stand-in for CUDA on machines without a GPU, as far as the transport over NCCL uses it: device memory is memory, a
// stream is a thread that does what is put on it in order.

#ifndef INTEGRATION_TESTS_NCCL_CUDA_RUNTIME_H
#define INTEGRATION_TESTS_NCCL_CUDA_RUNTIME_H

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidDevice = 101, cudaErrorNotReady = 600 };
using cudaStream_t = struct StandInStream*;
using cudaEvent_t = struct StandInEvent*;
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaSetDevice(int device);  // there is device 0
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);

#endif  // INTEGRATION_TESTS_NCCL_CUDA_RUNTIME_H
