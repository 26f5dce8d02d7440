#include "core/collectives/algorithms.h"

#include <stdexcept>

#include "core/arguments.h"

namespace paceline::core {

namespace {

constexpr NameTable<AllreduceMethod, kAllreduceMethods> kMethods{{
    {"linear", AllreduceMethod::kLinear},
    {"ring", AllreduceMethod::kRing},
    {"direct", AllreduceMethod::kDirect},
    {"doubling", AllreduceMethod::kDoubling},
}};

}  // namespace

AllreduceMethod AllreduceMethodOf(const std::string& name) { return ByName("allreduce", kMethods, name); }

const char* NameOf(AllreduceMethod method) { return kMethods.at(static_cast<std::size_t>(method)).first; }

CollectiveSchedule Allreduce(AllreduceMethod method, Place place, const BlockedMessage& message) {
  switch (method) {
    case AllreduceMethod::kLinear:
      return LinearAllreduce(place, message, place.ranks - 1);
    case AllreduceMethod::kRing:
      return RingAllreduce(place, message);
    case AllreduceMethod::kDirect:
      return DirectAllreduce(place, message);
    case AllreduceMethod::kDoubling:
      return DoublingAllreduce(place, message);
  }
  throw std::invalid_argument("no such allreduce method");
}

}  // namespace paceline::core
