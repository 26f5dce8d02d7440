#include "bridge/collectives/meeting.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "bridge/lost_rank.h"
#include "core/codecs/combine.h"

namespace horovod::paceline {

namespace core = ::paceline::core;

namespace {

// Above those of messages (engine.cc: 32 + 24 bits, of which 55 are in use when ranks have sent 2^31 messages).
constexpr uint64_t kTag = uint64_t{1} << 55U;

// Sends and receives that are begun together and waited for together. Their memory must outlive them.
class Together {
 public:
  explicit Together(Transport& transport) : transport_(transport) {}

  void Send(int32_t peer, const void* data, size_t bytes, uint64_t number = 0) {
    waited_.insert(transport_.Send(peer, kTag + number, data, bytes));
  }
  void Receive(int32_t peer, void* data, size_t bytes, uint64_t number = 0) {
    waited_.insert(transport_.Receive(peer, kTag + number, data, bytes));
  }

  void Wait() {
    std::string error;
    const auto limit = Transport::Clock::now() + transport_.limit();
    for (Completion completion; !waited_.empty() && error.empty();) {
      if (!transport_.WaitOn(limit, completion)) {
        error = "not all ranks came within " + std::to_string(transport_.limit().count()) +
                " ms. Is PACELINE_COLLECTIVE the same on all ranks?";
      } else {
        error = completion.error;
        waited_.erase(completion.operation);
      }
    }
    if (error.empty()) {
      return;
    }
    transport_.Abort();
    for (Completion completion; !waited_.empty() && transport_.WaitOn(limit + transport_.limit(), completion);) {
      waited_.erase(completion.operation);
    }
    throw LostRank("Rank " + std::to_string(transport_.rank()) + " of " + std::to_string(transport_.size()) +
                   ", comparing settings with the others: " + error);
  }

 private:
  Transport& transport_;
  std::set<uint64_t> waited_;
};

double Seconds(Transport::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Rank 0 hears all and answers all.
std::vector<double> Most(Transport& transport, std::vector<double> numbers) {
  const auto bytes = numbers.size() * sizeof(double);
  Together there(transport), back(transport);
  if (transport.rank() != 0) {
    std::vector<double> answer(numbers.size());
    back.Receive(0, answer.data(), bytes);
    there.Send(0, numbers.data(), bytes);
    there.Wait();
    back.Wait();
    return answer;
  }
  std::vector<std::vector<double>> heard(static_cast<size_t>(transport.size()), numbers);
  for (int32_t peer = 1; peer < transport.size(); ++peer) {
    there.Receive(peer, heard[static_cast<size_t>(peer)].data(), bytes);
  }
  there.Wait();
  for (const auto& of_one : heard) {
    std::transform(numbers.begin(), numbers.end(), of_one.begin(), numbers.begin(),
                   [](double one, double other) { return std::max(one, other); });
  }
  for (int32_t peer = 1; peer < transport.size(); ++peer) {
    back.Send(peer, numbers.data(), bytes);
  }
  back.Wait();
  return numbers;
}

// To the next rank and from the one before, all at once: `count` messages together.
double Shift(Transport& transport, std::vector<uint8_t>& out, std::vector<uint8_t>& in, int count) {
  const auto start = Transport::Clock::now();
  const auto p = transport.size();
  Together all(transport);
  for (int n = 0; n < count; ++n) {
    all.Receive((transport.rank() + p - 1) % p, in.data(), in.size(), static_cast<uint64_t>(n));
  }
  for (int n = 0; n < count; ++n) {
    all.Send((transport.rank() + 1) % p, out.data(), out.size(), static_cast<uint64_t>(n));
  }
  all.Wait();
  return Seconds(Transport::Clock::now() - start);
}

double Least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

}  // namespace

Extremes Compare(Transport& transport, const std::vector<double>& own) {
  auto both = own;
  for (const auto value : own) {
    both.push_back(-value);
  }
  both = Most(transport, std::move(both));
  const auto half = both.begin() + static_cast<std::ptrdiff_t>(own.size());
  Extremes extremes{{}, {both.begin(), half}};
  std::transform(half, both.end(), std::back_inserter(extremes.least), [](double value) { return -value; });
  return extremes;
}

void CheckSame(Transport& transport, const CollectiveChoice& choice) {
  const auto numbers = choice.numbers();
  const auto all = Compare(transport, {numbers.begin(), numbers.end()});
  std::ostringstream differing;
  for (size_t n = 0; n < numbers.size(); ++n) {
    if (all.least[n] != all.most[n]) {
      differing << " " << CollectiveChoice::kNames[n] << " from " << all.least[n] << " to " << all.most[n] << " ("
                << numbers[n] << " here);";
    }
  }
  if (!differing.str().empty()) {
    transport.Abort();
    throw std::runtime_error(
        "Rank " + std::to_string(transport.rank()) + " of " + std::to_string(transport.size()) +
        ": expected the same settings of collectives on all ranks, found" + differing.str() +
        " the numbers are those of docs/methods/collectives.md. Start all ranks with the same variables.");
  }
}

core::Network Measure(Transport& transport) {
  constexpr int kTurns = 5, kMany = 16;
  constexpr size_t kLarge_bytes = size_t{1} << 20U;
  std::vector<uint8_t> out(8), in(8), large_out(kLarge_bytes), large_in(kLarge_bytes);
  std::vector<double> one, many, large;
  for (int turn = 0; turn < kTurns; ++turn) {
    one.push_back(Shift(transport, out, in, 1));
    many.push_back(Shift(transport, out, in, kMany));
  }
  large.push_back(Shift(transport, large_out, large_in, 1));
  large.push_back(Shift(transport, large_out, large_in, 1));
  const auto start = Transport::Clock::now();
  core::Combine(core::DataType::kFloat32, core::ReduceOp::kSum, large_out.data(), large_in.data(), kLarge_bytes / 4);
  const auto gamma = Seconds(Transport::Clock::now() - start) / kLarge_bytes;
  const auto alpha = Least(one);
  const auto message = std::min(alpha, std::max(0., (Least(many) - alpha) / (kMany - 1)));
  const auto beta = std::max(0., Least(large) - alpha) / kLarge_bytes;
  const auto slowest = Most(transport, {alpha, message, beta, gamma});
  return {slowest[0], std::min(slowest[0], slowest[1]), slowest[2], slowest[3]};
}

}  // namespace horovod::paceline
