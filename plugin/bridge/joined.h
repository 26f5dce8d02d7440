// Ranks that have joined (hvd.join) and take part in an operation of ours all the same.

#ifndef PACELINE_BRIDGE_JOINED_H
#define PACELINE_BRIDGE_JOINED_H

#include "horovod/common/process_set.h"

namespace horovod::paceline {

// Horovod gives a joined rank zeros for every tensor. Between Leave() and Return() it takes the rank's own entries from
// the table. Background thread only.
class Joined {
 public:
  void Leave(common::ProcessSet& process_set) {
    left_ = left_ || process_set.joined;
    process_set.joined = false;
  }

  // Also where nothing was left.
  void Return(common::ProcessSet& process_set) {
    process_set.joined = process_set.joined || left_;
    left_ = false;
  }

 private:
  bool left_ = false;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_JOINED_H
