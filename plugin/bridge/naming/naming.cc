#include "bridge/naming/naming.h"

#include "bridge/participants.h"
#include "bridge/patches.h"

namespace horovod::paceline {

std::string AutomaticName(const std::string& kind, int32_t process_set_id) {
  return Get<Naming>().names().Next(kind, process_set_id);
}

}  // namespace horovod::paceline
