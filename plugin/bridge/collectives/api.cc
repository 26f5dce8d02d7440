// C entry points: what users choose of collectives and codecs, and what is saved of them.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "bridge/agree.h"
#include "bridge/c_boundary.h"
#include "bridge/collectives/choice.h"
#include "bridge/collectives/probed.h"
#include "bridge/collectives/residuals.h"
#include "bridge/copy_text.h"

namespace core = ::paceline::core;

using horovod::paceline::CopyText;
using horovod::paceline::TheChoices;
using horovod::paceline::TheResiduals;

extern "C" {

// Before init(), the same on all ranks. `method`: a core::AllreduceMethod, 4: by what is measured, -1: Horovod's own
// collectives. `codec`: its number among core::CodecNames(). `reproducible`: CollectiveChoice.
void horovod_paceline_collective(int32_t method, int64_t block_bytes, int32_t codec, int32_t error_feedback,
                                 int64_t codec_least_bytes, int32_t reproducible) try {
  TheChoices().Choose({method, block_bytes, {codec, error_feedback != 0}, codec_least_bytes, reproducible != 0});
}
PACELINE_CATCH()

// What `auto` knows of the network, the same on all ranks: start-up of a message and time of a byte between two of
// them, and what messages of `count` operations (core::Operation), methods and sizes took. No ranks: nothing. Returns
// 0, or -1 and in `error` why not.
int32_t horovod_paceline_network(int32_t ranks, double alpha_s, double beta_s_per_byte, int64_t block_bytes,
                                 int32_t count, const int32_t* operations, const int32_t* methods, const double* bytes,
                                 const double* seconds, char* error, int64_t capacity) try {
  horovod::paceline::Probe(nullptr);
  if (ranks == 0) {
    return 0;
  }
  std::vector<core::MeasuredTime> times;
  times.reserve(static_cast<size_t>(count));
  for (int32_t n = 0; n < count; ++n) {
    times.push_back({static_cast<core::Operation>(operations[n]), methods[n], bytes[n], seconds[n]});
  }
  try {
    const core::Network network{alpha_s, 0, beta_s_per_byte, 0};
    horovod::paceline::Probe(std::make_shared<core::MeasuredNetwork>(ranks, network, block_bytes, times));
  } catch (const std::exception& refused) {
    CopyText(refused.what(), error, capacity);
    return -1;
  }
  return 0;
}
PACELINE_CATCH(-1, error, capacity)

// Collectives of this world go by that network from now on, if all ranks call this with one `digest`. Returns 0, or -1
// and in `error` why not.
int32_t horovod_paceline_network_follow(int64_t digest, double limit_s, char* error, int64_t capacity) try {
  const auto agreed = horovod::paceline::AgreeMinMax(horovod::paceline::kNetworkAgreement, 0, {digest}, limit_s);
  if (!agreed.status.ok()) {
    CopyText(agreed.status.reason(), error, capacity);
    return -1;
  }
  return 0;
}
PACELINE_CATCH(-1, error, capacity)

// The method by which a message of so many bytes should be the fastest on that network, -1: Horovod's own; -2: nothing
// is known.
int32_t horovod_paceline_fastest(int32_t operation, int64_t bytes) try {
  const auto network = horovod::paceline::Probed();
  return network == nullptr ? -2
                            : network->Fastest(static_cast<core::Operation>(operation),
                                               static_cast<double>(std::max<int64_t>(bytes, 1)));
}
PACELINE_CATCH(-2)

// Returns the number of elements, -1 if there is none; copied are all if there is room for them.
int64_t horovod_paceline_residual_get(const char* name, int32_t process_set, float* values, int64_t capacity) try {
  const auto residual = TheResiduals().Get(process_set, name);
  const auto elements = static_cast<int64_t>(residual.size());
  if (elements > 0 && elements <= capacity) {
    std::copy(residual.begin(), residual.end(), values);
  }
  return elements > 0 ? elements : -1;
}
PACELINE_CATCH(-1)

// No values: what there was is dropped.
void horovod_paceline_residual_put(const char* name, int32_t process_set, const float* values, int64_t count) try {
  TheResiduals().Put(process_set, name, {values, values + count});
}
PACELINE_CATCH()

// Seconds that a message of `bytes`, at least 8, takes from one rank of the set to another, as measured by the first
// over `rounds` there and back. All ranks of the set call it at the same time. -1 and in `error` why not.
double horovod_paceline_ping(int32_t process_set, int32_t first, int32_t second, int32_t rounds, int64_t bytes,
                             double limit_s, char* error, int64_t capacity) try {
  const auto measured = horovod::paceline::Ping(process_set, {first, second, rounds}, bytes, limit_s);
  if (!measured.status.ok()) {
    CopyText(measured.status.reason(), error, capacity);
    return -1;
  }
  return measured.seconds;
}
PACELINE_CATCH(-1, error, capacity)
}
