#include "bridge/numerics/numerics.h"

#include <optional>

#include "bridge/half.h"
#include "bridge/ready.h"
#include "core/naming/automatic_names.h"
#include "core/numerics/non_finite.h"
#include "horovod/common/logging.h"
#include "horovod/common/operations.h"

namespace horovod::paceline {

namespace {

using ::paceline::core::AutomaticNames;
using ::paceline::core::FloatFormat;

std::optional<FloatFormat> FormatOf(common::DataType type) {
  switch (type) {
    case common::HOROVOD_FLOAT16:
      return FloatFormat::kHalf;
    case common::HOROVOD_FLOAT32:
      return FloatFormat::kSingle;
    case common::HOROVOD_FLOAT64:
      return FloatFormat::kDouble;
    default:
      return std::nullopt;
  }
}

bool AddsUp(common::ReduceOp op) {
  return op == common::ReduceOp::SUM || op == common::ReduceOp::AVERAGE || op == common::ReduceOp::ADASUM;
}

// Operations that their caller did not name are counted together: none of their names comes twice.
std::string Counted(const std::string& name) {
  return AutomaticNames::Made(name) ? name.substr(0, name.find('.')) : name;
}

}  // namespace

void Numerics::BeginWorld() {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_name_.clear();
}

bool Numerics::Enqueue(AllreduceCall& call, common::Status& status) {
  const Mode mode = mode_;
  if (mode == Mode::kOff || call.device != CPU_DEVICE_ID || !AddsUp(call.reducing.op)) {
    return false;
  }
  std::string refused;
  for (size_t n = 0; n < call.tensors.size(); ++n) {
    auto why = Refuse(call, n, mode);
    refused = refused.empty() ? std::move(why) : refused;
  }
  if (!refused.empty()) {
    status = common::Status::InvalidArgument(refused);
  }
  return !refused.empty();
}

std::string Numerics::Refuse(const AllreduceCall& call, size_t n, Mode mode) {
  const auto& name = call.names[n];
  const auto& tensor = *call.tensors[n];
  const auto format = FormatOf(tensor.dtype());
  if (!format || HalfOf(name) == Half::kAllGather) {
    return {};
  }
  const auto title = "Allreduce of " + name;
  // A copy that never ends is reported by whoever takes the call.
  if (!WaitReady(call.ready[n], title).ok()) {
    return {};
  }
  const auto elements = tensor.shape().num_elements();
  const auto count = ::paceline::core::CountNonFinite(tensor.data(), elements, *format);
  int64_t step = 0;
  bool logged = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& submitted = by_name_[{call.reducing.process_set_id, Counted(name)}];
    step = ++submitted.calls;
    if (!count.any()) {
      return {};
    }
    logged = std::exchange(submitted.logged, true);
  }
  ++found_;
  auto text = title + ": rank " + std::to_string(common::horovod_rank()) + " expected finite numbers, found " +
              std::to_string(count.nans) + " NaN and " + std::to_string(count.infinities) + " infinite of " +
              std::to_string(elements) + " elements in step " + std::to_string(step) +
              ", before ranks were added up. Look at the loss and the data of this rank in that step; where loss "
              "scaling makes infinities on purpose, set PACELINE_CHECK_NUMERICS=no.";
  if (mode == Mode::kRaise) {
    return text;
  }
  if (!logged) {
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    LOG(WARNING) << text;
  }
  return {};
}

}  // namespace horovod::paceline
