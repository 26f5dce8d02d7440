// Errors by who may be their cause.

#ifndef PACELINE_BRIDGE_LOST_RANK_H
#define PACELINE_BRIDGE_LOST_RANK_H

#include <stdexcept>

namespace horovod::paceline {

// An error of coordination that another rank may be the cause of: has the roll called, as Gloo's own errors of
// connections do (failure/failure.h).
class LostRank : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What this rank alone knows, such as that a message is another one than it expected: it is told at once. The others
// see a closed connection, and a rank that waited for their news would hear of that instead.
class FoundHere : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_LOST_RANK_H
