// Armed steps of three ranks, under all interleavings of what happens to them.

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/armed/armed_step.h"
#include "doctest/doctest.h"
#include "search.h"

using paceline::core::ArmedStep;
using paceline::core::Attention;
using Next = ArmedStep::Next;

namespace {

constexpr int kMessages = 3;

// What a rank does: hands in tensors of these messages, in this order. A negative number raises the flag, as another
// operation does; what is missing at the end never comes.
using Program = std::vector<int>;

template <typename Step>
struct Rank {
  Step step;
  Program program;
  size_t at = 0;
  int heard = 0;  // messages whose end it was told
};

struct Message {
  int begun = 0;
  bool flagged = false;
};

// Three ranks, and the messages between them: one has ended when all have begun it.
template <typename Step>
class Model {
 public:
  Model(const std::vector<int>& tensors, const std::vector<Program>& programs, int ahead)
      : tensors_(tensors), messages_(tensors.size()) {
    for (const auto& program : programs) {
      ranks_.push_back({Step(tensors, ahead), program});
    }
  }

  // What can happen, by rank: 'p' the program goes on, 'b' a message begins, 'e' one ended, 'w' waited for too long.
  std::vector<std::pair<char, int>> Enabled() const {
    std::vector<std::pair<char, int>> all;
    for (int n = 0; n < static_cast<int>(ranks_.size()); ++n) {
      const auto& rank = ranks_[static_cast<size_t>(n)];
      if (rank.step.next() == Next::kEnd) {
        continue;
      }
      if (rank.at < rank.program.size()) {
        all.emplace_back('p', n);
      }
      if (rank.step.next() == Next::kBegin) {
        all.emplace_back('b', n);
      } else if (rank.step.lacks() && !rank.step.flag()) {
        all.emplace_back('w', n);
      }
      if (rank.heard < rank.step.begun() &&
          messages_[static_cast<size_t>(rank.heard)].begun == static_cast<int>(ranks_.size())) {
        all.emplace_back('e', n);
      }
    }
    return all;
  }

  static std::string Text(const std::pair<char, int>& step) { return step.first + std::to_string(step.second); }

  void Do(const std::pair<char, int>& step) {
    const auto [what, number] = step;
    auto& rank = ranks_[static_cast<size_t>(number)];
    if (what == 'p') {
      const int message = rank.program[rank.at++];
      if (message < 0) {
        rank.step.Raise(Attention::kOther);
      } else {
        rank.step.Arrived(message);
      }
    } else if (what == 'w') {
      rank.step.Raise(Attention::kMissing);
    } else if (what == 'b') {
      auto& message = messages_[static_cast<size_t>(rank.step.begun())];
      if (!rank.step.flag() && rank.step.lacks()) {
        throw Fault{"a message began without its tensors"};
      }
      message.flagged = message.flagged || rank.step.flag();
      ++message.begun;
      rank.step.Begin();
    } else {
      const auto& message = messages_[static_cast<size_t>(rank.heard++)];
      if (rank.step.End(message.flagged) == message.flagged) {
        throw Fault{"values of a flagged message were used"};
      }
    }
  }

  void CheckFinal() const {
    for (const auto& rank : ranks_) {
      if (rank.step.next() != Next::kEnd) {
        throw Fault{"a rank waits for ever"};
      }
      if (rank.step.done() != ranks_[0].step.done() || rank.step.begun() != ranks_[0].step.begun()) {
        throw Fault{"ranks differ in what was done"};
      }
      if (rank.heard != rank.step.begun()) {
        throw Fault{"a rank left a message under way"};
      }
    }
    for (size_t n = 0; n < messages_.size(); ++n) {
      if (tensors_[n] < 0 && static_cast<int>(n) == ranks_[0].step.done()) {
        throw Fault{"some parts of a message are done, and some are not"};
      }
      const bool done = static_cast<int>(n) < ranks_[0].step.done();
      if (done && messages_[n].flagged) {
        throw Fault{"a flagged message is done"};
      }
    }
  }

  std::string Key() const {
    std::string key;
    for (const auto& rank : ranks_) {
      key += std::to_string(rank.at) + "," + std::to_string(rank.step.begun()) + "," + std::to_string(rank.heard) +
             (rank.step.attention() == Attention::kNone ? "." : "!") + (rank.step.flag() ? "!" : ".");
    }
    for (const auto& message : messages_) {
      key += message.flagged ? "f" : "-";
    }
    return key;
  }

  int done() const { return ranks_[0].step.done(); }

 private:
  std::vector<int> tensors_;  // below 0: a part behind the first one
  std::vector<Rank<Step>> ranks_;
  std::vector<Message> messages_;
};

// Adds the numbers of messages that were done at an end.
template <typename Step = ArmedStep>
Found ExploreStep(const std::vector<int>& tensors, const std::vector<Program>& programs, int ahead,
                  std::set<int>* done = nullptr) {
  return Explore(Model<Step>(tensors, programs, ahead), [done](const auto& model) {
    if (done != nullptr) {
      done->insert(model.done());
    }
  });
}

const std::vector<int> kTensors = {1, 1, 1};

// Ends as soon as it hears of a flag, whatever others have begun.
struct Hasty : ArmedStep {
  using ArmedStep::ArmedStep;
  Next next() const { return attention() == Attention::kOthers ? Next::kEnd : ArmedStep::next(); }
};

// Keeps what it wants to itself.
struct Shy : ArmedStep {
  using ArmedStep::ArmedStep;
  bool flag() const { return false; }
};

// Raises its flag between the parts of a message.
struct Moody : ArmedStep {
  using ArmedStep::ArmedStep;
  bool flag() const { return attention() != Attention::kNone; }
};

}  // namespace

TEST_CASE("three ranks whose programs differ, all interleavings") {
  // All there, in order and not; one of each message missing; another operation in between. Ranks are alike, so their
  // order does not matter.
  const std::vector<Program> programs = {{2, 0, 1}, {1, 2}, {0, 2}, {0, -1, 1, 2}};
  std::size_t states = 0;
  for (const int ahead : {1, 2}) {
    for (std::size_t first = 0; first < programs.size(); ++first) {
      for (std::size_t second = first; second < programs.size(); ++second) {
        for (std::size_t third = second; third < programs.size(); ++third) {
          const std::vector<Program> three = {programs[first], programs[second], programs[third]};
          std::set<int> done;
          const auto found = ExploreStep(kTensors, three, ahead, &done);
          states += found.visited.size();
          CAPTURE(ahead);
          CAPTURE(found.steps);
          REQUIRE(found.fault == "");
          // A message whose tensor never comes on some rank is never done, nor any behind it.
          for (const auto& program : three) {
            for (int message = 0; message < kMessages; ++message) {
              const auto there = std::count(program.begin(), program.end(), message);
              CHECK((there == kTensors[static_cast<std::size_t>(message)] || *done.rbegin() <= message));
            }
          }
        }
      }
    }
  }
  MESSAGE(states << " states");
}

TEST_CASE("a message in parts is done as a whole or not at all, all interleavings") {
  std::size_t states = 0, partly = 0;
  for (const std::vector<int>& tensors : {std::vector<int>{1, -1, -1, 1}, {1, -1, 1, -1}}) {
    Program all;
    for (int n = 0; n < static_cast<int>(tensors.size()); ++n) {
      all.insert(all.end(), static_cast<std::size_t>(std::max(tensors[static_cast<std::size_t>(n)], 0)), n);
    }
    std::vector<Program> programs = {all, {all.rbegin(), all.rend()}, {all.begin(), all.end() - 1}};
    for (std::size_t n = 0; n <= all.size(); ++n) {  // another operation there
      programs.push_back(all);
      programs.back().insert(programs.back().begin() + static_cast<std::ptrdiff_t>(n), -1);
    }
    for (const int ahead : {1, 2}) {
      for (std::size_t second = 0; second < programs.size(); ++second) {
        for (std::size_t third = second; third < programs.size(); ++third) {
          std::set<int> done;
          const auto found = ExploreStep(tensors, {all, programs[second], programs[third]}, ahead, &done);
          states += found.visited.size();
          partly += done.size() - 1;
          CAPTURE(ahead);
          CAPTURE(found.steps);
          REQUIRE(found.fault == "");
        }
      }
    }
  }
  CHECK(partly > 0);  // some ended in the middle
  MESSAGE(states << " states");
}

TEST_CASE("a step of ranks that have everything and wait long enough is complete") {
  for (const int ahead : {1, 2, 3}) {
    ArmedStep step(kTensors, ahead);
    CHECK(step.next() == Next::kWait);
    for (const int message : {1, 0, 2}) {
      step.Arrived(message);
    }
    for (int n = 0; n < kMessages; ++n) {
      REQUIRE(step.next() == Next::kBegin);
      CHECK(!step.flag());
      step.Begin();
      CHECK(step.End(false));
    }
    CHECK(step.next() == Next::kEnd);
    CHECK(step.complete());
    CHECK(step.attention() == Attention::kNone);
  }
}

TEST_CASE("the first reason is kept") {
  ArmedStep step({1, 1}, 1);
  step.Raise(Attention::kShutdown);
  step.Raise(Attention::kMissing);
  CHECK(step.attention() == Attention::kShutdown);
  CHECK(step.next() == Next::kBegin);
  step.Begin();
  CHECK(!step.End(true));
  CHECK(step.next() == Next::kEnd);
  CHECK(step.done() == 0);
  CHECK(!step.complete());
}

TEST_CASE("the search finds what is wrong") {
  const std::vector<Program> programs = {{0, 1, 2}, {0, 1, 2}, {0, -1, 1, 2}};
  CHECK(ExploreStep(kTensors, programs, 2).fault == "");
  CHECK(ExploreStep<Hasty>(kTensors, programs, 2).fault != "");
  CHECK(ExploreStep<Shy>(kTensors, {{0, 1, 2}, {0, 1, 2}, {0, 2}}, 2).fault != "");
  CHECK(ExploreStep<Moody>({1, -1, 1}, {{0, 2}, {0, 2}, {0, -1, 2}}, 2).fault != "");
  CHECK(ExploreStep({1, -1, 1}, {{0, 2}, {0, 2}, {0, -1, 2}}, 2).fault == "");
}
