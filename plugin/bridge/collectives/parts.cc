#include "bridge/collectives/parts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "bridge/collectives/residuals.h"
#include "bridge/reserved_names.h"
#include "bridge/types.h"
#include "core/collectives/algorithms.h"
#include "core/naming/automatic_names.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

// The number before the next dot, which is taken off; -1: none.
int32_t Take(std::string_view& text) {
  constexpr size_t kMostDigits = 9;
  const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > kMostDigits || digits == text.size() || text[digits] != '.') {
    return -1;
  }
  const auto number = std::stoi(std::string(text.substr(0, digits)));
  text.remove_prefix(digits + 1);
  return number;
}

// Of a message that we carry because of other tensors in it: those that would go Horovod's way go by this one. Also the
// way of halves.
constexpr auto kBeside = static_cast<int32_t>(core::AllreduceMethod::kDirect);

Encoding EncodingOf(const common::TensorTableEntry& entry, const common::Response& response, core::DataType dtype,
                    const CollectiveChoice& choice) {
  // What ranks tell each other must be exact; that is float64. Float32 is what measures how long messages take.
  const auto sweep = Begins(entry.tensor_name, kControlNames) && dtype == core::DataType::kFloat32;
  const auto sum = OpOf(response.reduce_op()) == core::ReduceOp::kSum && !Begins(entry.tensor_name, kReserved);
  if (!(sweep || sum) || static_cast<int64_t>(entry.tensor->size()) < choice.codec_least_bytes) {
    return {};
  }
  auto encoding = sweep ? choice.encoding : Encoding::Of(entry.tensor_name);
  // Nothing follows under such a name that its residual could be added to, and all would be kept.
  encoding.error_feedback = encoding.error_feedback && !core::AutomaticNames::Made(entry.tensor_name);
  const auto* codec = CodecOf(encoding);
  return codec == nullptr || !codec->Refusal(dtype).empty() ? Encoding{} : encoding;
}

}  // namespace

Purpose Purpose::Of(const std::string& name) {
  std::string_view rest = name;
  // Frameworks put words of theirs before names.
  for (const auto mark : {kReduceNames, kReduceNodes}) {
    if (const auto at = rest.find(mark); at != std::string_view::npos) {
      rest.remove_prefix(at + mark.size());
      return {Kind::kReduce, Take(rest), -1};
    }
  }
  if (Begins(name, kPingNames)) {
    rest.remove_prefix(kPingNames.size());
    const auto first = Take(rest), second = Take(rest);
    return {Kind::kPing, first, second, Take(rest)};
  }
  Purpose purpose;
  purpose.half = HalfOf(name);
  return purpose;
}

const core::Codec* CodecOf(const Encoding& encoding) {
  const auto& codec = core::CodecNumbered(encoding.codec);
  return codec.exact() ? nullptr : &codec;
}

std::vector<MessagePart> PartsOf(const std::vector<common::TensorTableEntry>& entries, const common::Response& response,
                                 core::DataType dtype) {
  const auto& choices = TheChoices();
  const auto choice = choices.chosen();
  // What a codec makes of a tensor depends on where its slices and its shards begin, so on what is packed before it.
  const auto alone = [&](const Encoding& encoding) { return choice.reproducible && CodecOf(encoding) != nullptr; };
  std::map<std::tuple<Purpose, Encoding, int32_t, size_t>, MessagePart> parts;
  for (size_t n = 0; n < entries.size(); ++n) {
    const auto purpose = Purpose::Of(entries[n].tensor_name);
    const auto encoding = purpose.ordinary() ? EncodingOf(entries[n], response, dtype, choice) : Encoding{};
    auto method = choices.MethodOf(entries[n].process_set_id, entries[n].tensor_name);
    method = method == CollectiveChoice::kHorovods || purpose.half != Half::kBoth ? kBeside : method;
    auto& part = parts[{purpose, encoding, method, purpose.half != Half::kBoth || alone(encoding) ? n + 1 : 0}];
    part.process_set_id = entries[n].process_set_id;
    part.purpose = purpose;
    part.encoding = encoding;
    part.method = method;
    part.tensors.push_back(n);
    part.elements += entries[n].tensor->shape().num_elements();
  }
  std::vector<MessagePart> list;
  list.reserve(parts.size());
  for (auto& [key, part] : parts) {
    list.push_back(std::move(part));
  }
  return list;
}

std::function<void(int64_t, int64_t, uint8_t*)> WithFeedback(const MessagePart& part,
                                                             const std::vector<common::TensorTableEntry>& entries,
                                                             core::DataType dtype) {
  struct Tensor {
    std::string name;
    int64_t begin, elements;
  };
  auto tensors = std::make_shared<std::vector<Tensor>>();
  int64_t begin = 0;
  for (const auto n : part.tensors) {
    const auto elements = entries[n].tensor->shape().num_elements();
    TheResiduals().Begin(part.process_set_id, entries[n].tensor_name);
    tensors->push_back({entries[n].tensor_name, begin, elements});
    begin += elements;
  }
  return [set = part.process_set_id, tensors, codec = CodecOf(part.encoding), data = part.data, dtype](
             int64_t offset, int64_t count, uint8_t* bytes) {
    std::vector<core::ErrorFeedback::Part> parts;
    auto tensor = std::upper_bound(tensors->begin(), tensors->end(), offset,
                                   [](int64_t at, const Tensor& one) { return at < one.begin; }) -
                  1;
    for (auto at = offset; at < offset + count; ++tensor) {
      const auto end = std::min(offset + count, tensor->begin + tensor->elements);
      parts.push_back({tensor->name, tensor->elements, at - tensor->begin, end - at});
      at = end;
    }
    TheResiduals().Encode(set, *codec, parts, dtype, data + offset * core::BytesOf(dtype), bytes);
  };
}

}  // namespace horovod::paceline
