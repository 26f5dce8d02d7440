// What the patches of Horovod's faults call (plugin/horovod/patches/table.py says which fault each one ends).

#ifndef PACELINE_BRIDGE_PATCHES_H
#define PACELINE_BRIDGE_PATCHES_H

#include <cstdint>
#include <functional>
#include <string>

namespace horovod::paceline {

// A new world is being initialised in this process.
void Initializing();

// Run a part of the connection set-up. False: it threw; the message is kept for Python and logged.
bool Connect(const std::function<void()>& part);

// The name of an operation of this process set that its caller did not name.
std::string AutomaticName(const std::string& kind, int32_t process_set_id);

// A process set is registered; one that had this id has ended.
void NewProcessSet();
void EndProcessSet(int32_t process_set_id);

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_PATCHES_H
