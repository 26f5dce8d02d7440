#include "bridge/collectives/operations.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "bridge/collectives/engine.h"
#include "core/codecs/combine.h"
#include "core/collectives/algorithms.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

// Of Horovod's types; false for those that we do not reduce.
bool TypeOf(common::DataType dtype, core::DataType& out) {
  switch (dtype) {
    case common::DataType::HOROVOD_UINT8:
      out = core::DataType::kUint8;
      return true;
    case common::DataType::HOROVOD_INT8:
      out = core::DataType::kInt8;
      return true;
    case common::DataType::HOROVOD_UINT16:
      out = core::DataType::kUint16;
      return true;
    case common::DataType::HOROVOD_INT16:
      out = core::DataType::kInt16;
      return true;
    case common::DataType::HOROVOD_INT32:
      out = core::DataType::kInt32;
      return true;
    case common::DataType::HOROVOD_INT64:
      out = core::DataType::kInt64;
      return true;
    case common::DataType::HOROVOD_FLOAT16:
      out = core::DataType::kFloat16;
      return true;
    case common::DataType::HOROVOD_FLOAT32:
      out = core::DataType::kFloat32;
      return true;
    case common::DataType::HOROVOD_FLOAT64:
      out = core::DataType::kFloat64;
      return true;
    case common::DataType::HOROVOD_BOOL:
      out = core::DataType::kBool;
      return true;
  }
  return false;
}

bool OpOf(common::ReduceOp op, core::ReduceOp& out) {
  switch (op) {
    case common::ReduceOp::AVERAGE:  // a factor makes it an average
    case common::ReduceOp::SUM:
      out = core::ReduceOp::kSum;
      return true;
    case common::ReduceOp::MIN:
      out = core::ReduceOp::kMin;
      return true;
    case common::ReduceOp::MAX:
      out = core::ReduceOp::kMax;
      return true;
    case common::ReduceOp::PRODUCT:
      out = core::ReduceOp::kProduct;
      return true;
    default:
      return false;
  }
}

bool OnCpu(const std::vector<common::TensorTableEntry>& entries) {
  return std::all_of(entries.begin(), entries.end(), [](const auto& entry) { return entry.device == CPU_DEVICE_ID; });
}

void Run(Transport& transport, Collective collective) {
  Engine engine(transport);
  engine.Begin(std::move(collective));
  engine.Finish();
}

core::BlockedMessage InBlocks(int64_t elements, int64_t element_bytes) {
  return {elements, std::max<int64_t>(1, Collectives::Chosen().block_bytes / element_bytes)};
}

}  // namespace

bool OwnAllreduce::Enabled(const common::ParameterManager& /*manager*/,
                           const std::vector<common::TensorTableEntry>& entries,
                           const common::Response& response) const {
  core::DataType dtype{};
  core::ReduceOp op{};
  return Collectives::Chosen().method != CollectiveChoice::kHorovods && !entries.empty() && OnCpu(entries) &&
         TypeOf(entries[0].tensor->dtype(), dtype) && OpOf(response.reduce_op(), op) &&
         collectives_.Reaches(global_state_->process_set_table.Get(entries[0].process_set_id));
}

common::Status OwnAllreduce::Execute(std::vector<common::TensorTableEntry>& entries, const common::Response& response) {
  WaitForData(entries);
  auto& first = entries[0];
  auto& process_set = global_state_->process_set_table.Get(first.process_set_id);
  auto& timeline = global_state_->timeline;
  const auto transport = collectives_.Make(process_set);
  const auto elements = NumElements(entries);

  Collective collective;
  TypeOf(first.tensor->dtype(), collective.dtype);
  OpOf(response.reduce_op(), collective.op);
  collective.name = first.tensor_name + (entries.size() > 1 ? ", ..." : "");
  collective.sequence = collectives_.Next(first.process_set_id);

  const void* packed = nullptr;
  if (entries.size() > 1) {
    timeline.ActivityStartAll(entries, MEMCPY_IN_FUSION_BUFFER);
    size_t length = 0;
    MemcpyInFusionBuffer(entries, packed, collective.result, length);
    timeline.ActivityEndAll(entries);
  } else {
    collective.result = const_cast<void*>(first.output->data());
    if (first.tensor->data() != collective.result) {
      std::memcpy(collective.result, first.tensor->data(), static_cast<size_t>(first.tensor->size()));
    }
  }
  core::Scale(collective.dtype, collective.result, elements, response.prescale_factor());

  timeline.ActivityStartAll(entries, "PACELINE_ALLREDUCE");
  const auto method = static_cast<core::AllreduceMethod>(Collectives::Chosen().method);
  collective.schedule = std::make_shared<core::CollectiveSchedule>(core::Allreduce(
      method, {transport->rank(), transport->size()}, InBlocks(elements, core::BytesOf(collective.dtype))));
  auto* result = collective.result;
  const auto dtype = collective.dtype;
  Run(*transport, std::move(collective));
  timeline.ActivityEndAll(entries);

  const auto average = response.reduce_op() == common::ReduceOp::AVERAGE;
  core::Scale(dtype, result, elements, response.postscale_factor() / (average ? transport->size() : 1));
  if (entries.size() > 1) {
    timeline.ActivityStartAll(entries, MEMCPY_OUT_FUSION_BUFFER);
    MemcpyOutFusionBuffer(result, entries);
    timeline.ActivityEndAll(entries);
  }
  return common::Status::OK();
}

bool OwnBroadcast::Enabled(const common::ParameterManager& /*manager*/,
                           const std::vector<common::TensorTableEntry>& entries,
                           const common::Response& /*response*/) const {
  return Collectives::Chosen().method != CollectiveChoice::kHorovods && entries.size() == 1 && OnCpu(entries) &&
         collectives_.Reaches(global_state_->process_set_table.Get(entries[0].process_set_id));
}

common::Status OwnBroadcast::Execute(std::vector<common::TensorTableEntry>& entries,
                                     const common::Response& /*response*/) {
  WaitForData(entries);
  auto& entry = entries[0];
  auto& process_set = global_state_->process_set_table.Get(entry.process_set_id);
  const auto transport = collectives_.Make(process_set);

  Collective collective;
  collective.name = entry.tensor_name;
  collective.sequence = collectives_.Next(entry.process_set_id);
  collective.dtype = core::DataType::kUint8;  // whatever it is, it is only moved
  const auto root = process_set.controller->GetRank() == entry.root_rank;
  collective.result = const_cast<void*>(root ? entry.tensor->data() : entry.output->data());
  collective.schedule = std::make_shared<core::CollectiveSchedule>(core::LinearBroadcast(
      {transport->rank(), transport->size()}, InBlocks(entry.tensor->size(), 1), entry.root_rank));
  auto& timeline = global_state_->timeline;
  timeline.ActivityStartAll(entries, "PACELINE_BROADCAST");
  Run(*transport, std::move(collective));
  timeline.ActivityEndAll(entries);
  return common::Status::OK();
}

}  // namespace horovod::paceline
