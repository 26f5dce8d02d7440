// Checks what this rank submits to be added up for NaN and infinities (PACELINE_CHECK_NUMERICS).

#ifndef PACELINE_BRIDGE_NUMERICS_NUMERICS_H
#define PACELINE_BRIDGE_NUMERICS_NUMERICS_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "bridge/participant.h"

namespace horovod::paceline {

// Sums and averages of floating-point numbers in CPU memory: others may be infinite on purpose, as the start of a
// minimum is, or are weights.
class Numerics : public Participant {
 public:
  enum class Mode : int32_t { kOff, kLog, kRaise };

  void Set(Mode mode) { mode_ = mode; }
  // Tensors with NaN or infinities since the library was loaded.
  int64_t found() const { return found_; }

  void BeginWorld() override;
  bool Enqueue(AllreduceCall& call, common::Status& status) override;

 private:
  struct Submitted {
    int64_t calls = 0;
    bool logged = false;
  };

  // Counts the call of tensor `n`; returns why it is refused, empty if it is not.
  std::string Refuse(const AllreduceCall& call, size_t n, Mode mode);

  std::atomic<Mode> mode_{Mode::kOff};
  std::atomic<int64_t> found_{0};
  std::mutex mutex_;                                              // protects everything below
  std::map<std::pair<int32_t, std::string>, Submitted> by_name_;  // by process set and name
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_NUMERICS_NUMERICS_H
