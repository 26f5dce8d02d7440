// PACELINE_COLLECTIVE=auto: which collective does messages of a size, predicted first and measured then.

#ifndef PACELINE_BRIDGE_COLLECTIVES_AUTO_CHOICE_H
#define PACELINE_BRIDGE_COLLECTIVES_AUTO_CHOICE_H

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "bridge/transport.h"
#include "core/collectives/algorithms.h"
#include "core/collectives/collective_time.h"

namespace horovod::paceline {

struct Way {
  ::paceline::core::AllreduceMethod method = ::paceline::core::AllreduceMethod::kLinear;
  int64_t block_bytes = 1;
};

// Of one process set. Messages are counted in the order in which they begin, which is the same on all ranks; so all
// answers are, too. Messages whose sizes are within a factor of two make a class. The states of a class:
//
//   state     a message goes                                        ends
//   trying    by the next of the candidates, those that should      when each was tried kTrials times and all have
//             take little more than the fastest, which comes         ended: the ranks compare (Decide). They do so
//             first, in turn                                         before, too, after one trial of each, and go on
//                                                                    without those that took kHopeless of the fastest
//   decided   by the candidate whose best time was least
//
// The candidates are rank 0's, which tells them: predictions may differ between machines in the last bit.
class AutoChoice {
 public:
  // A trial that has begun; to be told of with Took when it ends. No other message with `auto` is sent
  // beside it: what messages beside others take says more about those. Parts of one message do, and messages by a
  // collective that was named.
  struct Pick {
    Way way;
    int32_t size_class = 0, candidate = 0;
    bool trial = false;
  };

  // Whether it is known how messages of this size go: if not, For needs a transport with nothing under way.
  bool Decided(int64_t bytes, bool encoded) const;
  // Without codecs all methods are candidates, or those that sum in the order of ranks; else those that encode.
  // `followed`: others are sent beside it and after it, so how well it shares links counts: where that has been
  // decided, it goes by the ring if this took at most kAmongOthers of the fastest. A ring sends all the
  // time; others wait, for hops or for room.
  Pick For(Transport& transport, int64_t bytes, bool encoded, bool followed);
  void Took(const Pick& pick, double seconds);
  // No message is under way: classes that have been tried are decided. All ranks call it at the same point.
  void Decide(Transport& transport);

  // What a message of so many bytes should take, and in which blocks.
  using Predict = std::function<::paceline::core::TimedChoice(::paceline::core::AllreduceMethod, double)>;

  // Once, before the first message; the same on all ranks. What should take at most `worth_trying` times the fastest is
  // a candidate; `in_rank_order`: of those that core::SumsInRankOrder names.
  bool knows() const { return predict_ != nullptr; }
  void Know(Predict predict, double worth_trying, bool in_rank_order) {
    predict_ = std::move(predict);
    worth_trying_ = worth_trying;
    in_rank_order_ = in_rank_order;
  }

 private:
  static constexpr int32_t kTrials = 3;
  static constexpr double kHopeless = 2, kAmongOthers = 1.25;

  struct Candidate {
    Way way;
    double predicted_s = 0;  // by rank 0
    double best_s = 0;       // of this rank; once decided, of the slowest
    int32_t begun = 0;
  };
  struct Class {
    std::vector<Candidate> candidates;
    int32_t chosen = -1;
    bool compared = false;
  };

  void Compare(Transport& transport, Class& its) const;
  std::vector<Candidate> Candidates(Transport& transport, int64_t bytes, bool encoded) const;

  Predict predict_;
  double worth_trying_ = 1;
  bool in_rank_order_ = false;
  std::map<int32_t, Class> classes_;
};

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_COLLECTIVES_AUTO_CHOICE_H
