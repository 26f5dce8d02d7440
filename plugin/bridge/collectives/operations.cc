#include "bridge/collectives/operations.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bridge/collectives/parts.h"
#include "bridge/collectives/residuals.h"
#include "bridge/reserved_names.h"
#include "bridge/types.h"
#include "core/codecs/combine.h"
#include "core/collectives/algorithms.h"
#include "core/collectives/ping.h"
#include "horovod/common/logging.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

using Entries = std::vector<common::TensorTableEntry>;

namespace {

bool OnCpu(const Entries& entries) {
  return std::all_of(entries.begin(), entries.end(), [](const auto& one) { return one.device == CPU_DEVICE_ID; });
}

// What the user chose, or what is best on a link whose queue holds 50 ms: docs/methods/collectives.md.
int64_t BlockBytes(int64_t usual_bytes) {
  const auto chosen_bytes = TheChoices().chosen().block_bytes;
  return chosen_bytes > 0 ? chosen_bytes : usual_bytes;
}

// Of a reduce or a broadcast. The chain's last rank waits for a block of every rank between: of a short message it is
// to wait for less than it receives.
int64_t OneWayBlockBytes(int64_t bytes) {
  constexpr int64_t kLeastBytes = int64_t{16} * 1024, kBlocks = 8;
  return BlockBytes(std::clamp(bytes / kBlocks, kLeastBytes, core::kOneWayBlockBytes));
}

// Of no codec where `codec` is null. Blocks of encoded values are multiples of what a codec encodes by itself.
int64_t BlockElements(int64_t block_bytes, core::DataType dtype, const core::Codec* codec) {
  if (codec == nullptr) {
    return std::max<int64_t>(1, block_bytes / core::BytesOf(dtype));
  }
  const auto slice_bytes = codec->EncodedBytes(dtype, core::kCodecSlice);
  return std::max<int64_t>(1, block_bytes / slice_bytes) * core::kCodecSlice;
}

// Whether a network that was measured says that Horovod's own collective is faster than ours, where `auto` chooses.
bool HorovodsIsFaster(const ProbedNetwork& probed, core::Operation operation, int64_t bytes) {
  return probed != nullptr && bytes > 0 &&
         probed->Fastest(operation, static_cast<double>(bytes)) == core::MeasuredNetwork::kStock;
}

// Those that `auto` chooses for, of the type that was measured: Horovod's own may convert others first.
bool AllAutomatic(const Entries& entries) {
  return std::all_of(entries.begin(), entries.end(), [](const auto& one) {
    return one.tensor->dtype() == common::DataType::HOROVOD_FLOAT32 &&
           TheChoices().MethodOf(one.process_set_id, one.tensor_name) == CollectiveChoice::kAuto &&
           CodecOf(Encoding::Of(one.tensor_name)) == nullptr && Purpose::Of(one.tensor_name).ordinary();
  });
}

int64_t BytesOf(const Entries& entries) {
  return std::accumulate(entries.begin(), entries.end(), int64_t{0},
                         [](int64_t sum, const auto& one) { return sum + static_cast<int64_t>(one.tensor->size()); });
}

bool IsReduce(const MessagePart& part) { return part.purpose.kind == Purpose::Kind::kReduce; }

// Whether this rank is left with what it brought.
bool KeepsItsOwn(const MessagePart& part, int32_t rank) { return IsReduce(part) && part.purpose.first != rank; }

// Whether a part's values are put together where its result is to be, or, where there is none, are read where they are.
bool InPlace(const MessagePart& part, const common::Response& response, int32_t rank) {
  return part.tensors.size() == 1 && !(KeepsItsOwn(part, rank) && response.prescale_factor() != 1.0);
}

void Pack(MessagePart& part, const Entries& entries) {
  auto* to = part.data;
  for (const auto n : part.tensors) {
    const auto bytes = static_cast<size_t>(entries[n].tensor->size());
    if (entries[n].tensor->data() != to && bytes > 0) {
      std::memcpy(to, entries[n].tensor->data(), bytes);
    }
    to += bytes;
  }
}

void Unpack(const MessagePart& part, Entries& entries) {
  const auto* from = part.data;
  for (const auto n : part.tensors) {
    auto* to = const_cast<void*>(entries[n].output->data());
    const auto bytes = static_cast<size_t>(entries[n].tensor->size());
    if (to != from && bytes > 0) {
      std::memcpy(to, from, bytes);
    }
    from += bytes;
  }
}

Collectives::Schedule ScheduleOf(Collectives& collectives, const MessagePart& part, const Way& way,
                                 core::DataType dtype, core::Place place) {
  const auto& purpose = part.purpose;
  if (purpose.kind == Purpose::Kind::kPing) {
    return std::make_shared<core::CollectiveSchedule>(
        core::PingPong(place, part.elements, {purpose.first, purpose.second, purpose.rounds}));
  }
  const core::BlockedMessage message{part.elements, BlockElements(way.block_bytes, dtype, CodecOf(part.encoding))};
  if (IsReduce(part)) {
    return std::make_shared<core::CollectiveSchedule>(core::LinearReduce(place, message, purpose.first));
  }
  return purpose.half == Half::kBoth ? collectives.AllreduceSchedule(way.method, place, message)
                                     : collectives.HalfSchedule(purpose.half, place, message);
}

// Numbers of a part's codec are agreed, as is the order of tensors in it.
core::MessageTerms TermsOf(const MessagePart& part, const Entries& entries, const Way& way, core::DataType dtype) {
  core::MessageTerms terms;
  const auto* codec = CodecOf(part.encoding);
  terms.codec = codec == nullptr ? 0 : part.encoding.codec;
  if (part.purpose.kind == Purpose::Kind::kPing) {
    terms.way = core::MessageTerms::kPing;
  } else {
    terms.way = part.purpose.half != Half::kBoth ? WayOf(part.purpose.half)
                : IsReduce(part)                 ? core::MessageTerms::kReduce
                                                 : static_cast<int32_t>(way.method);
    terms.block = BlockElements(way.block_bytes, dtype, codec);
  }
  core::TensorsDigest tensors;
  for (const auto n : part.tensors) {
    tensors.Add(entries[n].tensor_name);
    tensors.Add(static_cast<int64_t>(entries[n].tensor->size()));
  }
  tensors.Add(static_cast<int64_t>(dtype));
  terms.tensors = tensors.value();
  return terms;
}

// The flight cannot go on without this rank.
[[noreturn]] void Abort(Flight& flight, int32_t rank, const std::string& name, int64_t bytes) {
  const std::runtime_error error(
      "Rank " + std::to_string(rank) + ": no memory to carry " + name + " of " + std::to_string(bytes) +
      " bytes. Use smaller messages (HOROVOD_FUSION_THRESHOLD) or fewer ranks on this host.");
  flight.FailHere(error);
  throw error;
}

// Once, of a sum that goes Horovod's own way.
void SayNotReproducible(const Entries& entries, const common::Response& response) {
  const auto type = entries.empty() ? std::nullopt : TypeOf(entries[0].tensor->dtype());
  const auto exact = !type || *type < core::DataType::kFloat16 || *type == core::DataType::kBool;
  if (exact || OpOf(response.reduce_op()) != core::ReduceOp::kSum || Begins(entries[0].tensor_name, kAgreementNames)) {
    return;
  }
  static std::once_flag said;
  std::call_once(said, [&] {
    using namespace ::horovod::common;  // the LOG macro names Horovod's classes without their namespace
    LOG(WARNING) << "PACELINE_REPRODUCIBLE=yes does not hold for " << entries[0].tensor_name
                 << (OnCpu(entries) ? ", whose ranks Paceline's collectives do not reach" : ", which is on a device")
                 << ": the order in which Horovod's own collectives add up may differ from run to run. Sum it in CPU "
                    "memory, or leave the variable out.";
  });
}

}  // namespace

bool OwnAllreduce::Enabled(const common::ParameterManager& /*manager*/, const Entries& entries,
                           const common::Response& response) const {
  const auto takes = Takes(entries, response);
  if (!takes && TheChoices().chosen().reproducible && global_state_->global_controller->GetSize() > 1) {
    SayNotReproducible(entries, response);
  }
  return takes;
}

bool OwnAllreduce::Takes(const Entries& entries, const common::Response& response) const {
  if (entries.empty() || !OnCpu(entries) || !TypeOf(entries[0].tensor->dtype()) || !OpOf(response.reduce_op())) {
    return false;
  }
  // What ranks compare in a thread of a caller must not depend on what they compare.
  if (Begins(entries[0].tensor_name, kAgreementNames)) {
    return false;
  }
  const auto asked = std::any_of(entries.begin(), entries.end(), [](const auto& one) {
    return CodecOf(Encoding::Of(one.tensor_name)) != nullptr ||
           TheChoices().MethodOf(one.process_set_id, one.tensor_name) != CollectiveChoice::kHorovods ||
           !Purpose::Of(one.tensor_name).ordinary();
  });
  auto& process_set = global_state_->process_set_table.Get(entries[0].process_set_id);
  if (!asked || !collectives_.Reaches(process_set)) {
    return false;
  }
  return !AllAutomatic(entries) || TheChoices().chosen().reproducible ||
         !HorovodsIsFaster(collectives_.ProbedAmong(process_set.controller->GetSize()), core::Operation::kAllreduce,
                           BytesOf(entries));
}

AutoChoice::Pick OwnAllreduce::PickFor(const MessagePart& part, core::DataType dtype, int32_t ranks) {
  const auto* codec = CodecOf(part.encoding);
  AutoChoice::Pick pick;
  const auto method = static_cast<core::AllreduceMethod>(part.method);
  pick.way = {method, IsReduce(part) ? OneWayBlockBytes(part.elements * core::BytesOf(dtype))
                                     : BlockBytes(core::UsualBlockBytes(method, ranks))};
  const auto automatic = part.method == CollectiveChoice::kAuto;
  // Collectives encode different sums.
  const auto one_way = codec != nullptr && TheChoices().chosen().reproducible;
  if (automatic && !one_way && ranks > 1 && part.purpose.ordinary()) {
    const auto wire_bytes =
        codec == nullptr ? part.elements * core::BytesOf(dtype) : codec->EncodedBytes(dtype, part.elements);
    pick = collectives_.PickFor(part.process_set_id, wire_bytes, codec != nullptr);
  } else if (automatic || (codec != nullptr && method == core::AllreduceMethod::kDoubling)) {
    // A single rank sends nothing, so there is nothing to measure; doubling is not for values that lose something.
    pick.way.method = core::AllreduceMethod::kDirect;
  }
  return pick;
}

common::Status OwnAllreduce::Execute(Entries& entries, const common::Response& response) {
  WaitForData(entries);
  const auto set = entries[0].process_set_id;
  auto& process_set = global_state_->process_set_table.Get(set);
  auto& flight = collectives_.In(process_set, set);
  // Enabled has seen that there are such a type and operation.
  const auto dtype = TypeOf(entries[0].tensor->dtype()).value_or(core::DataType::kUint8);
  const auto op = OpOf(response.reduce_op()).value_or(core::ReduceOp::kSum);
  const auto element_bytes = core::BytesOf(dtype);
  const auto average = response.reduce_op() == common::ReduceOp::AVERAGE;
  const core::Place place{flight.transport().rank(), flight.transport().size()};
  const auto name = entries[0].tensor_name + (entries.size() > 1 ? ", ..." : "");
  int64_t all_bytes = 0;
  bool begun = false;  // from then on the message has the tensors, and the other ranks wait for this one
  try {
    auto parts = PartsOf(entries, response, dtype);
    // First what may wait for messages before this one.
    std::vector<AutoChoice::Pick> picks;
    int64_t packed_bytes = 0;
    for (const auto& part : parts) {
      all_bytes += part.elements * element_bytes;
      packed_bytes += InPlace(part, response, place.rank) ? 0 : part.elements * element_bytes;
      picks.push_back(PickFor(part, dtype, place.ranks));
    }
    auto room = packed_bytes > 0 ? flight.MakeRoom(packed_bytes) : Room();
    auto* free = room.get();
    std::vector<Collective> collectives;
    for (size_t n = 0; n < parts.size(); ++n) {
      auto& part = parts[n];
      if (InPlace(part, response, place.rank)) {
        const auto& entry = entries[part.tensors[0]];
        const auto* data = KeepsItsOwn(part, place.rank) ? entry.tensor->data() : entry.output->data();
        part.data = static_cast<uint8_t*>(const_cast<void*>(data));
      } else {
        part.data = free;
        free += part.elements * element_bytes;
      }
      Collective one;
      one.name = name;
      one.dtype = dtype;
      one.op = op;
      one.result = part.data;
      one.bytes = part.elements * element_bytes;
      one.codec = CodecOf(part.encoding);
      one.schedule = ScheduleOf(collectives_, part, picks[n].way, dtype, place);
      one.terms = TermsOf(part, entries, picks[n].way, dtype);
      if (part.encoding.error_feedback && one.codec != nullptr) {
        one.encode = WithFeedback(part, entries, dtype);
      }
      collectives.push_back(std::move(one));
    }
    const auto message =
        std::make_shared<Message>(*global_state_, process_set, entries, response, "PACELINE_ALLREDUCE");
    message->Keep(std::move(room));
    message->Expect(parts.size());
    flight.Add(message);
    begun = true;
    for (size_t n = 0; n < parts.size(); ++n) {
      Pack(parts[n], message->entries());
      core::Scale(dtype, parts[n].data, parts[n].elements, response.prescale_factor());
      const auto factor = response.postscale_factor() / (average ? place.ranks : 1);
      collectives[n].sequence = collectives_.NextSequence(set);
      collectives[n].done = [this, set, message = message.get(), part = std::move(parts[n]), pick = picks[n], dtype,
                             factor, rank = place.rank, start = Clock::now()] {
        const std::chrono::duration<double> took = Clock::now() - start;
        if (pick.trial) {
          collectives_.Took(set, pick, took.count());
        }
        if (part.purpose.kind == Purpose::Kind::kPing && dtype == core::DataType::kFloat64 && part.elements > 0) {
          const double seconds = took.count();
          std::memcpy(part.data, &seconds, sizeof(seconds));
        }
        if (part.encoding.error_feedback && !core::AllFinite(dtype, part.data, part.elements)) {
          for (const auto n : part.tensors) {
            TheResiduals().Spoil(set, message->entries()[n].tensor_name);
          }
        }
        // Nobody reads the output of a rank that keeps its own: not even its pages are to be made.
        if (!KeepsItsOwn(part, rank)) {
          core::Scale(dtype, part.data, part.elements, factor);
          Unpack(part, message->entries());
        }
        message->PartEnded();
      };
      flight.Begin(std::move(collectives[n]));
    }
  } catch (const std::bad_alloc&) {
    Abort(flight, place.rank, name, all_bytes);
  } catch (const std::exception& error) {
    if (begun) {
      flight.Fail(error);
    }
    throw;
  }
  return common::Status::InProgress();
}

bool OwnBroadcast::Enabled(const common::ParameterManager& /*manager*/, const Entries& entries,
                           const common::Response& /*response*/) const {
  if (entries.size() != 1 || !OnCpu(entries)) {
    return false;
  }
  const auto method = TheChoices().MethodOf(entries[0].process_set_id, entries[0].tensor_name);
  if (method == CollectiveChoice::kHorovods) {
    return false;
  }
  auto& process_set = global_state_->process_set_table.Get(entries[0].process_set_id);
  return collectives_.Reaches(process_set) &&
         (method != CollectiveChoice::kAuto ||
          !HorovodsIsFaster(collectives_.ProbedAmong(process_set.controller->GetSize()), core::Operation::kBroadcast,
                            BytesOf(entries)));
}

common::Status OwnBroadcast::Execute(Entries& entries, const common::Response& response) {
  WaitForData(entries);
  const auto& entry = entries[0];
  const auto set = entry.process_set_id;
  auto& process_set = global_state_->process_set_table.Get(set);
  auto& flight = collectives_.In(process_set, set);
  const core::Place place{flight.transport().rank(), flight.transport().size()};
  const auto bytes = static_cast<int64_t>(entry.tensor->size());
  Collective one;
  one.name = entry.tensor_name;
  one.dtype = core::DataType::kUint8;  // whatever it is, it is only moved
  one.result = const_cast<void*>(place.rank == entry.root_rank ? entry.tensor->data() : entry.output->data());
  one.bytes = bytes;
  const auto name = one.name;
  bool begun = false;
  try {
    const core::BlockedMessage message{bytes, OneWayBlockBytes(bytes)};
    one.schedule = std::make_shared<core::CollectiveSchedule>(core::LinearBroadcast(place, message, entry.root_rank));
    core::TensorsDigest tensors;
    tensors.Add(entry.tensor_name);
    tensors.Add(entry.root_rank);
    one.terms = {core::MessageTerms::kBroadcast, 0, message.block, tensors.value()};
    const auto sent = std::make_shared<Message>(*global_state_, process_set, entries, response, "PACELINE_BROADCAST");
    sent->Expect(1);
    flight.Add(sent);
    begun = true;
    one.sequence = collectives_.NextSequence(set);
    one.done = [sent = sent.get()] { sent->PartEnded(); };
    flight.Begin(std::move(one));
  } catch (const std::bad_alloc&) {
    Abort(flight, place.rank, name, bytes);
  } catch (const std::exception& error) {
    if (begun) {
      flight.Fail(error);
    }
    throw;
  }
  return common::Status::InProgress();
}

}  // namespace horovod::paceline
