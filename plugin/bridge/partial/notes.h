// What a rank tells the coordinator about partial rounds, in the form of Horovod's requests.

#ifndef PACELINE_BRIDGE_PARTIAL_NOTES_H
#define PACELINE_BRIDGE_PARTIAL_NOTES_H

#include <cstdint>
#include <string>

#include "bridge/reserved_names.h"
#include "horovod/common/common.h"
#include "horovod/common/message.h"

namespace horovod::paceline {

// About its part in a name (kMisfit: a call had another shape or type than those of the rounds before; it was refused,
// and all ranks are to be told), or about itself, without a name: that something holds it up (kAbsent) or no longer
// does, or nothing (kLook), for the coordinator to look at its counts.
enum class PartialNews : int32_t {
  kVote = 1,
  kFlush = 2,
  kArrived = 3,
  kAbsent = 4,
  kPresent = 5,
  kMisfit = 6,
  kLook = 7
};

// Votes, flushes and misfits are requests under the tensor's name, which Horovod counts and compares. They carry their
// news and the round in one field that allreduces leave free, the root rank: 0 in all other requests.
int32_t NewsAndRound(PartialNews news, int64_t round);
bool OfRound(const common::Request& request, int64_t round);
// Of a misfit: the shape that was handed in.
common::TensorShape FoundShape(const common::Request& misfit);

// A note is a request that Horovod does not see: the coordinator takes it out. Its name has the tensor's name in it.
inline bool IsNote(const std::string& name) { return Begins(name, kNoteNames); }
std::string NotedName(const std::string& name);
// A note of this rank; `round` for kArrived.
common::Request NoteAbout(const std::string& name, PartialNews news, int64_t round, int32_t rank);

// Of either.
PartialNews NewsOf(const common::Request& request);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PARTIAL_NOTES_H
