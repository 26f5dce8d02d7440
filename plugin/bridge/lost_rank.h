// An error of coordination that another rank may be the cause of.

#ifndef PACELINE_BRIDGE_LOST_RANK_H
#define PACELINE_BRIDGE_LOST_RANK_H

#include <stdexcept>

namespace horovod::paceline {

// Has the roll called, as Gloo's own errors of connections do (failure/failure.h).
class LostRank : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_LOST_RANK_H
