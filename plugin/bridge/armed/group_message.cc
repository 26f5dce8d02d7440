#include "bridge/armed/group_message.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <sstream>
#include <utility>

#include "bridge/participants.h"
#include "bridge/ready.h"
#include "bridge/reserved_names.h"
#include "bridge/types.h"
#include "core/codecs/combine.h"
#include "core/collectives/message_terms.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

constexpr const char* kActivity = "PACELINE_ARMED";

bool Reserved(const std::string& name) {
  return Begins(name, kReserved) || name.find(kReduceNames) != std::string::npos ||
         name.find(kReduceNodes) != std::string::npos;
}

// 1 in each type: sums of as many as there may be ranks are never 0, whatever they are rounded to.
template <typename T>
void Put(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace

bool GroupMessage::Fits(const common::Response& response) {
  const auto type = response.tensor_type();
  const auto op = response.reduce_op();
  return response.response_type() == common::Response::ALLREDUCE &&
         (type == common::HOROVOD_FLOAT16 || type == common::HOROVOD_FLOAT32 || type == common::HOROVOD_FLOAT64) &&
         (op == common::ReduceOp::SUM || op == common::ReduceOp::AVERAGE) &&
         std::all_of(response.devices().begin(), response.devices().end(),
                     [](int32_t device) { return device == CPU_DEVICE_ID; }) &&
         std::none_of(response.tensor_names().begin(), response.tensor_names().end(), [&](const auto& name) {
           const auto half = HalfOf(name);
           return half != HalfOf(response.tensor_names()[0]) || (half == Half::kBoth && Reserved(name));
         });
}

std::string GroupMessage::Signature(const common::Response& response) {
  std::ostringstream text;
  text.precision(17);
  text << response.response_type() << ' ' << response.tensor_type() << ' ' << response.reduce_op() << ' '
       << response.prescale_factor() << ' ' << response.postscale_factor();
  for (const auto device : response.devices()) {
    text << ' ' << device;
  }
  text << '\n';
  for (size_t n = 0; n < response.tensor_names().size(); ++n) {
    text << response.tensor_names()[n] << '\0';
    if (n < response.tensor_sizes().size()) {
      text << response.tensor_sizes()[n] << '\n';
    }
  }
  return text.str();
}

GroupMessage::GroupMessage(common::Response response, core::Place place, int32_t part, int32_t parts)
    : response_(std::move(response)),
      dtype_(TypeOf(response_.tensor_type()).value_or(core::DataType::kFloat32)),
      place_(place),
      half_(HalfOf(response_.tensor_names()[0])),
      part_(part),
      parts_(parts) {
  const auto& sizes = response_.tensor_sizes();
  const auto elements = std::accumulate(sizes.begin(), sizes.end(), static_cast<int64_t>(0));
  first_ = elements * part / parts;
  elements_ = elements * (part + 1) / parts - first_;
  stride_ = half_ == Half::kBoth ? elements_ + 1 : 1;
  for (size_t n = 0; n < sizes.size() && half_ != Half::kBoth; ++n) {
    stride_ += Room(n);
  }
  core::TensorsDigest digest;
  for (size_t n = 0; n < sizes.size(); ++n) {
    digest.Add(names()[n]);
    digest.Add(sizes[n]);
  }
  digest.Add(part);
  tensors_ = digest.value();
}

std::string GroupMessage::Text() const {
  return names()[0] + (names().size() > 1 ? ", ..." : "") +
         (parts_ > 1 ? ", part " + std::to_string(part_ + 1) + " of " + std::to_string(parts_) : "");
}

bool GroupMessage::Asks(const common::Request& request, size_t tensor) const {
  const auto& shape = request.tensor_shape();
  return request.request_type() == common::Request::ALLREDUCE && request.tensor_type() == response_.tensor_type() &&
         request.reduce_op() == response_.reduce_op() && request.device() == CPU_DEVICE_ID &&
         request.prescale_factor() == response_.prescale_factor() &&
         request.postscale_factor() == response_.postscale_factor() &&
         std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()) ==
             response_.tensor_sizes()[tensor];
}

size_t GroupMessage::bytes() const { return static_cast<size_t>(shards() * stride_ * core::BytesOf(dtype_)); }

template <typename Tensor, typename Body>
void GroupMessage::ForShards(int32_t rank, uint8_t* buffer, const std::vector<Tensor*>& tensors,
                             const Body& body) const {
  const int64_t element_bytes = core::BytesOf(dtype_);
  auto* at = buffer + rank * stride_ * element_bytes;
  for (size_t n = 0; n < tensors.size(); ++n) {
    const auto shard = core::ShardOf(response_.tensor_sizes()[n], {rank, place_.ranks});
    if (shard.count > 0) {
      body(tensors[n] + shard.offset * element_bytes, at, static_cast<size_t>(shard.count * element_bytes));
    }
    at += Room(n) * element_bytes;
  }
}

// Elements that each rank has for a tensor.
int64_t GroupMessage::Room(size_t tensor) const {
  return core::ShardOf(response_.tensor_sizes()[tensor], {0, place_.ranks}).count;
}

uint8_t* GroupMessage::FlagAt(uint8_t* buffer, int32_t shard) const {
  return buffer + ((shard + 1) * stride_ - 1) * core::BytesOf(dtype_);
}

common::Status GroupMessage::Pack(const common::TensorQueue& queue, uint8_t* buffer) const {
  auto* to = buffer;
  std::vector<const uint8_t*> tensors;  // of a half
  for (const auto& name : names()) {
    const auto& entry = queue.GetTensorEntry(name);
    const auto status = WaitReady(entry.ready_event_list, "Allreduce of " + name);
    if (!status.ok()) {
      return status;
    }
    const auto* from = static_cast<const uint8_t*>(entry.tensor->data());
    if (half_ != Half::kBoth) {
      tensors.push_back(from);
      continue;
    }
    const auto bytes = BytesOf(entry);
    if (bytes > 0) {
      std::memcpy(to, from + offset_bytes(), bytes);
    }
    to += bytes;
  }
  if (half_ != Half::kBoth) {
    PackHalf(tensors, buffer);
    return common::Status::OK();
  }
  core::Scale(dtype_, buffer, elements_, response_.prescale_factor());
  return common::Status::OK();
}

// Of an all-gather others send their shards.
void GroupMessage::PackHalf(const std::vector<const uint8_t*>& tensors, uint8_t* buffer) const {
  for (int32_t rank = 0; rank < place_.ranks; ++rank) {
    if (half_ == Half::kReduceScatter || rank == place_.rank) {
      ForShards(rank, buffer, tensors, [](const auto* from, auto* at, size_t bytes) { std::memcpy(at, from, bytes); });
    }
  }
  core::Scale(dtype_, buffer, shards() * stride_, response_.prescale_factor());
}

// Of a reduce-scatter this rank's shard is there; of an all-gather it was there before.
void GroupMessage::UnpackHalf(uint8_t* buffer, const std::vector<uint8_t*>& tensors, double factor) const {
  for (int32_t rank = 0; rank < place_.ranks; ++rank) {
    if ((half_ == Half::kReduceScatter) == (rank == place_.rank)) {
      core::Scale(dtype_, buffer + rank * stride_ * core::BytesOf(dtype_), stride_, factor);
      ForShards(rank, buffer, tensors, [](auto* to, const auto* at, size_t bytes) { std::memcpy(to, at, bytes); });
    }
  }
}

// Of an entry in this message.
size_t GroupMessage::BytesOf(const common::TensorTableEntry& entry) const {
  return parts_ > 1 ? static_cast<size_t>(elements_ * core::BytesOf(dtype_))
                    : static_cast<size_t>(entry.tensor->size());
}

const uint8_t* GroupMessage::Unpack(const common::TensorTableEntry& entry, const uint8_t* from) const {
  const auto bytes = BytesOf(entry);
  if (bytes > 0) {
    std::memcpy(static_cast<uint8_t*>(const_cast<void*>(entry.output->data())) + offset_bytes(), from, bytes);
  }
  return from + bytes;
}

void GroupMessage::SetFlag(uint8_t* buffer, bool raised) const {
  constexpr uint16_t kHalfOne = 0x3C00;
  for (int32_t shard = 0; shard < shards(); ++shard) {
    auto* at = FlagAt(buffer, shard);
    switch (dtype_) {
      case core::DataType::kFloat16:
        Put<uint16_t>(at, raised ? kHalfOne : 0);
        break;
      case core::DataType::kFloat64:
        Put<double>(at, raised ? 1 : 0);
        break;
      default:
        Put<float>(at, raised ? 1 : 0);
    }
  }
}

bool GroupMessage::Flag(uint8_t* buffer) const {
  for (int32_t shard = 0; shard < shards(); ++shard) {
    const auto* at = FlagAt(buffer, shard);
    if (std::any_of(at, at + core::BytesOf(dtype_), [](uint8_t byte) { return byte != 0; })) {
      return true;
    }
  }
  return false;
}

void GroupMessage::Complete(common::HorovodGlobalState& state, common::ProcessSet& process_set, uint8_t* buffer,
                            int64_t start_ns) const {
  const auto ranks = response_.reduce_op() == common::ReduceOp::AVERAGE ? process_set.controller->GetSize() : 1;
  const auto factor = response_.postscale_factor() / ranks;
  if (half_ == Half::kBoth) {
    core::Scale(dtype_, buffer, elements_, factor);
  }
  if (part_ + 1 < parts_) {
    Unpack(process_set.tensor_queue.GetTensorEntry(names()[0]), buffer);
    return;
  }
  std::vector<common::TensorTableEntry> entries;
  process_set.tensor_queue.GetTensorEntriesFromResponse(response_, entries, false);
  if (!process_set.group_table.empty()) {
    process_set.group_table.DeregisterGroups(names());
  }
  auto& timeline = state.timeline;
  for (const auto& entry : entries) {
    timeline.Start(entry.tensor_name, common::Response::ALLREDUCE, entry.tensor->size());
  }
  timeline.ActivityStartAll(entries, kActivity);
  const auto* from = buffer;
  std::vector<uint8_t*> tensors;  // of a half
  for (const auto& entry : entries) {
    if (half_ == Half::kBoth) {
      from = Unpack(entry, from);
    } else {
      tensors.push_back(static_cast<uint8_t*>(const_cast<void*>(entry.output->data())));
    }
  }
  if (half_ != Half::kBoth) {
    UnpackHalf(buffer, tensors, factor);
  }
  timeline.ActivityEndAll(entries);
  const auto status = common::Status::OK();
  NotifyPerformed({process_set, response_, entries, status, start_ns, Nanoseconds(Clock::now()), true});
  for (auto& entry : entries) {
    timeline.End(entry.tensor_name, entry.output);
    entry.FinishWithCallback(status);
  }
}

}  // namespace horovod::paceline
