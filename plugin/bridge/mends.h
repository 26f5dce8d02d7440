// What the mends of Horovod's faults call (plugin/host/mends.py says which fault each one ends).

#ifndef PACELINE_BRIDGE_MENDS_H
#define PACELINE_BRIDGE_MENDS_H

#include <functional>
#include <string>

namespace horovod {
namespace paceline {

// A new world is being initialised in this process.
void Initializing();

// Run a part of the connection set-up. False: it threw; the message is kept for Python and logged.
bool Connect(const std::function<void()>& part);

// The name of an operation that its caller did not name.
std::string AutomaticName(const std::string& kind);

}  // namespace paceline
}  // namespace horovod

#endif  // PACELINE_BRIDGE_MENDS_H
