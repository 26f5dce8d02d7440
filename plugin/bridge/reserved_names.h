// Names of our own operations and messages, which no user's operation can have.

#ifndef PACELINE_BRIDGE_RESERVED_NAMES_H
#define PACELINE_BRIDGE_RESERVED_NAMES_H

#include <cstddef>
#include <string>

namespace horovod {
namespace paceline {

// The control character DEL, which JSON, Horovod's timeline among it, takes as it is.
inline constexpr char kReserved[] =
    "\x7f"
    "paceline.";
// Control operations (fusion/control_op.h).
inline constexpr char kControlNames[] =
    "\x7f"
    "paceline.control.";
// Messages to the coordinator, which it takes out before they are counted (partial/notes.h).
inline constexpr char kNoteNames[] =
    "\x7f"
    "paceline.note.";
// What ranks agree on in the thread of a caller (agree.h).
inline constexpr char kAgreementNames[] =
    "\x7f"
    "paceline.agree.";

// Whether `name` begins with one of these.
template <std::size_t N>
bool Begins(const std::string& name, const char (&prefix)[N]) {
  return name.compare(0, N - 1, prefix) == 0;
}

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_RESERVED_NAMES_H
