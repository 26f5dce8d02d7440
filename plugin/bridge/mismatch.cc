#include "bridge/mismatch.h"

#include <cstddef>
#include <map>
#include <set>

#include "horovod/common/common.h"

namespace horovod::paceline {

std::string SubmittedByRank(const std::vector<common::Request>& requests, const std::vector<int>& global_ranks) {
  std::map<std::string, std::set<int>> ranks_of;
  for (const auto& request : requests) {
    common::TensorShape shape;
    for (const auto elements : request.tensor_shape()) {
      shape.AddDim(elements);
    }
    const auto rank = static_cast<size_t>(request.request_rank());
    ranks_of[common::Request::RequestType_Name(request.request_type()) + " of " +
             common::DataType_Name(request.tensor_type()) + " " + shape.DebugString()]
        .insert(rank < global_ranks.size() ? global_ranks[rank] : request.request_rank());
  }
  std::string text = " Tensor " + requests.front().tensor_name() + ": ";
  const auto* separator = "";
  for (const auto& [what, ranks] : ranks_of) {
    text += separator + what + " on rank" + (ranks.size() > 1 ? "s" : "");
    const auto* before = " ";
    for (const auto rank : ranks) {
      text += before + std::to_string(rank);
      before = ", ";
    }
    separator = "; ";
  }
  return text + ".";
}

}  // namespace horovod::paceline
