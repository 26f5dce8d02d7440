#include "bridge/collectives/probed.h"

#include <mutex>
#include <utility>

namespace horovod::paceline {

namespace {

struct Kept {
  std::mutex mutex;  // protects what follows
  ProbedNetwork network;
};

Kept& TheKept() {
  static auto* kept = new Kept;
  return *kept;
}

}  // namespace

void Probe(ProbedNetwork network) {
  const std::lock_guard<std::mutex> lock(TheKept().mutex);
  TheKept().network = std::move(network);
}

ProbedNetwork Probed() {
  const std::lock_guard<std::mutex> lock(TheKept().mutex);
  return TheKept().network;
}

}  // namespace horovod::paceline
