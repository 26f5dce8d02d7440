// Names of our own operations and messages, which no user's operation can have.

#ifndef PACELINE_BRIDGE_RESERVED_NAMES_H
#define PACELINE_BRIDGE_RESERVED_NAMES_H

#include <string>
#include <string_view>

namespace horovod::paceline {

// The control character DEL, which JSON, Horovod's timeline among it, takes as it is.
inline constexpr std::string_view kReserved =
    "\x7f"
    "paceline.";
// Control operations (fusion/control_op.h).
inline constexpr std::string_view kControlNames =
    "\x7f"
    "paceline.control.";
// Of these, what a rank that leaves asks all others (leaving/leaving.h).
inline constexpr std::string_view kLeavingNames =
    "\x7f"
    "paceline.control.leaving.";
// Messages to the coordinator, which it takes out before they are counted (partial/notes.h).
inline constexpr std::string_view kNoteNames =
    "\x7f"
    "paceline.note.";
// What ranks agree on in the thread of a caller (agree.h).
inline constexpr std::string_view kAgreementNames =
    "\x7f"
    "paceline.agree.";
// A reduce: its root, counted in the process set, a dot, and the user's name of it. Frameworks hand it in, with
// words of theirs before it.
inline constexpr std::string_view kReduceNames =
    "\x7f"
    "paceline.reduce.";
// The same in names of nodes of TensorFlow, which cannot hold DEL.
inline constexpr std::string_view kReduceNodes = ">7Fpaceline.reduce.";
// The halves of an allreduce (half.h), and the user's name. Frameworks hand them in, with words of theirs before.
inline constexpr std::string_view kReduceScatterNames =
    "\x7f"
    "paceline.reduce_scatter.";
inline constexpr std::string_view kAllGatherNames =
    "\x7f"
    "paceline.all_gather.";
// A measurement of a pair of ranks: both, the rounds between them, each with a dot behind it (collectives/ping.cc).
inline constexpr std::string_view kPingNames =
    "\x7f"
    "paceline.ping.";

// A change of process sets, among the operations that hold a rank up (partial/partial.cc).
inline constexpr std::string_view kProcessSetsName =
    "\x7f"
    "paceline.process_sets";

// Whether `name` begins with one of these.
inline bool Begins(const std::string& name, std::string_view prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_RESERVED_NAMES_H
