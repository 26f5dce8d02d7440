#include "bridge/runtime.h"

namespace horovod {
namespace paceline {

Runtime& GetRuntime() {
  static auto* runtime = new Runtime;
  return *runtime;
}

}  // namespace paceline
}  // namespace horovod
