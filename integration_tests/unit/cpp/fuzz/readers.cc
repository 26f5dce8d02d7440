// libFuzzer's entry: the readers of what other ranks send. The variable READER names the one that gets all inputs.
//
// Readers may refuse by std::invalid_argument or std::runtime_error. integration_tests/readers.py builds and runs it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/codecs/codec.h"
#include "core/coordination/round_message.h"
#include "core/failure/watch_socket.h"
#include "core/fusion/active_plan.h"
#include "core/fusion/merge_plan.h"
#include "core/naming/name_mark.h"
#include "core/settings/comparison.h"
#include "core/text/json.h"

namespace {

using namespace paceline::core;
using Bytes = std::basic_string_view<uint8_t>;

void Need(bool holds) {
  if (!holds) {
    std::abort();
  }
}

std::string TextOf(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

// Plans: every tensor has a group, and no group is without members.
void ReadPlan(Bytes bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::copy_n(bytes.data(), values.size() * sizeof(double), reinterpret_cast<uint8_t*>(values.data()));
  const auto plan = DecodePlan(values);
  const std::vector<ReducedTensor> tensors(plan.group_of.size(), {"tensor", 4096});
  const ActivePlan active(plan, tensors);
  Need(plan.parts_of.size() == tensors.size() && active.timeout_ns() >= 0);
  for (int32_t tensor = -1; tensor <= static_cast<int32_t>(tensors.size()); ++tensor) {
    const auto* group = active.Group(tensor);
    Need(active.PartsOf(tensor) >= 1 && (group == nullptr || !group->names.empty()));
  }
}

// Messages about lost ranks, as they arrive: in pieces.
void ReadWatch(Bytes bytes) {
  std::string input;
  WatchMessage message;
  size_t taken = 0;
  for (size_t begin = 0; begin < bytes.size(); begin += 7) {
    input += TextOf(bytes.substr(begin, 7));
    while (Take(input, message)) {
      taken += message.text.size();
    }
  }
  Need(taken + input.size() <= bytes.size());
}

void ReadRound(Bytes bytes) {
  RoundMessage received;
  std::copy_n(bytes.data(), std::min(bytes.size(), sizeof(received)), reinterpret_cast<uint8_t*>(&received));
  const std::vector<uint64_t> words(RoundMessage::kWords, bytes.empty() ? 0 : bytes.back());
  for (const auto operation : {BitOperation::kAnd, BitOperation::kOr}) {
    for (const size_t count : {size_t{0}, size_t{3}, RoundMessage::kWords}) {
      auto known = MessageOf(received.sequence, operation, words.data(), count);
      Combine(known, received);
      Need(!Text(received).empty());
    }
  }
}

void ReadName(Bytes bytes) {
  const auto mark = NameMark::Of(TextOf(bytes));
  Need(mark.codec >= 0 && mark.codec < static_cast<int32_t>(CodecNames().size()));
}

// Settings of up to four ranks.
void ReadSettings(Bytes bytes) {
  std::vector<std::string> texts;
  for (size_t quarter = 0; quarter < 4; ++quarter) {
    texts.push_back(TextOf(bytes.substr(bytes.size() * quarter / 4, bytes.size() / 4)));
  }
  ReportOfDiffering(texts);
  Need(ReportOfDiffering({texts[0], texts[0]}).empty());
}

void WriteJson(Bytes bytes) {
  const auto text = Json().Put(TextOf(bytes), TextOf(bytes)).Text();
  Need(text.front() == '{' && text.back() == '}');
  Need(std::all_of(text.begin(), text.end(), [](char one) { return static_cast<unsigned char>(one) >= ' '; }));
}

// Encoded values of every codec, into every type that it takes.
void ReadCodec(Bytes bytes) {
  for (const auto& name : CodecNames()) {
    const auto& codec = CodecNamed(name);
    for (auto type = DataType::kUint8; type <= DataType::kBool; type = DataType(static_cast<uint8_t>(type) + 1)) {
      if (!codec.Refusal(type).empty()) {
        continue;
      }
      int64_t count = 0;
      while (count < 600 && codec.EncodedBytes(type, count + 1) <= static_cast<int64_t>(bytes.size())) {
        ++count;
      }
      std::vector<uint8_t> block(static_cast<size_t>(count * BytesOf(type)), 0);
      const std::vector<uint8_t> exact(bytes.begin(), bytes.begin() + codec.EncodedBytes(type, count));
      codec.Decode(type, exact.data(), count, block.data());
      if (type != DataType::kBool) {  // of its values only 0 and 1 can be combined
        codec.DecodeCombine(type, ReduceOp::kMax, exact.data(), count, block.data());
      }
    }
  }
}

// A fault made on purpose, for the runner to see that one is reported.
void Overflow(Bytes bytes) {
  const std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  if (copy.size() > 3) {
    Need(copy.data()[copy.size()] != 77);
  }
}

const std::map<std::string, std::function<void(Bytes)>> kReaders{
    {"plan", ReadPlan},         {"watch", ReadWatch}, {"round", ReadRound}, {"name", ReadName},
    {"settings", ReadSettings}, {"json", WriteJson},  {"codec", ReadCodec}, {"overflow", Overflow}};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& reader = kReaders.at(std::getenv("READER"));
  try {
    reader(Bytes(data, size));
  } catch (const std::invalid_argument&) {
  } catch (const std::runtime_error&) {
  }
  return 0;
}
