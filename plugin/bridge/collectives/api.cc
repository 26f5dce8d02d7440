// C entry points: what users choose of collectives and codecs, and what is saved of them.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bridge/agree.h"
#include "bridge/collectives/choice.h"
#include "bridge/collectives/residuals.h"

using horovod::paceline::Residuals;
using horovod::paceline::TheChoices;
using horovod::paceline::TheResiduals;

extern "C" {

// Before init(), the same on all ranks. `method`: a core::AllreduceMethod, 4: by what is measured, -1: Horovod's own
// collectives. `codec`: its number among core::CodecNames().
void horovod_paceline_collective(int32_t method, int64_t block_bytes, int32_t codec, int32_t error_feedback,
                                 int64_t codec_least_bytes) {
  TheChoices().Choose({method, block_bytes, {codec, error_feedback != 0}, codec_least_bytes});
}

// Gradients of this name travel so, the same on all ranks, instead of as chosen in general; `codec` -1: as that again.
void horovod_paceline_codec_of(int32_t process_set, const char* name, int32_t codec, int32_t error_feedback) {
  if (codec < 0) {
    TheChoices().EncodeAsChosen(process_set, name);
  } else {
    TheChoices().Encode(process_set, name, {codec, error_feedback != 0});
  }
}

// The residuals that there are: "<process set> <name>" in a line each. Returns the bytes of the text; copied are as
// many as there is room for.
int64_t horovod_paceline_residual_names(char* text, int64_t capacity) {
  std::string lines;
  for (const auto& name : TheResiduals().Names()) {
    lines += name + "\n";
  }
  const auto bytes = static_cast<int64_t>(lines.size());
  std::memcpy(text, lines.data(), static_cast<size_t>(std::min(bytes, capacity)));
  return bytes;
}

// Returns the number of elements, 0 if there is none; copied are all if there is room for them.
int64_t horovod_paceline_residual_get(int32_t process_set, const char* name, float* values, int64_t capacity) {
  const auto residual = TheResiduals().Get(Residuals::Name(process_set, name));
  const auto elements = static_cast<int64_t>(residual.size());
  if (elements <= capacity) {
    std::copy(residual.begin(), residual.end(), values);
  }
  return elements;
}

void horovod_paceline_residual_put(int32_t process_set, const char* name, const float* values, int64_t count) {
  TheResiduals().Put(Residuals::Name(process_set, name), {values, values + count});
}

// Seconds that a message of `bytes`, at least 8, takes from one rank of the set to another, as measured by the first
// over `rounds` there and back. All ranks of the set call it at the same time. -1 and in `error` why not.
double horovod_paceline_ping(int32_t process_set, int32_t first, int32_t second, int32_t rounds, int64_t bytes,
                             double limit_s, char* error, int64_t capacity) {
  const auto measured = horovod::paceline::Ping(process_set, {first, second, rounds}, bytes, limit_s);
  if (!measured.status.ok()) {
    std::strncpy(error, measured.status.reason().c_str(), static_cast<size_t>(capacity) - 1);
    error[capacity - 1] = '\0';
    return -1;
  }
  return measured.seconds;
}
}
