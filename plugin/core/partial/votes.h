// When a round of a partial collective is ready: the coordinator's count of the votes for one name.

#ifndef PACELINE_CORE_PARTIAL_VOTES_H
#define PACELINE_CORE_PARTIAL_VOTES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline::core {

// The rank whose vote makes `round` ready where one rank is chosen by chance. All ranks and machines draw the same one:
// outputs of SplitMix64 (Steele et al., OOPSLA 2014), output number `round` of the generator with state `seed`, modulo
// `size`. An output of the incomplete last interval of length `size` would favour the low ranks; it is replaced by the
// first output of the generator whose state is that output, and so on.
int32_t Initiator(uint64_t seed, int64_t round, int32_t size);

// Which votes make a round ready.
struct QuorumRule {
  int32_t count = 1;    // so many; 0: that of the round's initiator
  uint64_t seed = 0;    // of the initiators
  int64_t max_lag = 0;  // after missing so many rounds in a row a rank is waited for; 0: never

  static QuorumRule Solo() { return {1, 0, 0}; }
  static QuorumRule Majority(int32_t size) { return {(size + 1) / 2, 0, 0}; }
  static QuorumRule RandomInitiator(uint64_t seed) { return {0, seed, 0}; }
};

// What the coordinator knows about the ranks of its process set, whatever the name. By rank.
struct Attendance {
  explicit Attendance(int32_t size)
      : absent(static_cast<std::size_t>(size), false), blocked(static_cast<std::size_t>(size), false) {}

  // No call of it is to be expected for now: something else holds it up (holdups.h).
  std::vector<bool> absent;
  // It voted under a name of this process set and has not been answered.
  std::vector<bool> blocked;
  // All ranks wait for each other (standstill.h): as if all were absent.
  bool standstill = false;

  // Rounds wait for a call of this rank.
  bool Expects(std::size_t rank) const { return !standstill && !absent[rank]; }
};

// A rank has called in a round if it voted in it, flushes, or arrived and is blocked: its late call was answered with
// results of rounds before, its contribution waits in its send buffer for this one, and it makes no further call before
// its vote under another name is answered. (One that arrived and goes on will call again; to count it at once would
// begin rounds before their initiator came.) A rank is present unless it is absent, or flushes: then it makes no calls
// until all ranks flush. The first of these that holds decides, each time that Settle is called:
//
//   1  all ranks flush                                      ready, and closing
//   2  nobody voted                                         not ready
//   3  every rank that is present has called                ready
//   4  round 0                                              not ready
//   5  max_lag and a present rank that has not called       not ready
//      missed the last max_lag rounds
//   6  the initiator voted, or `count` ranks have           ready
//
// In 3, round 0 (nobody else knows the shape) waits for absent ranks, too. An absent initiator is replaced by the next
// rank that is present or voted. A call of an absent rank counts.
//
// Line 3 is what keeps names from waiting for each other, where a rank waits for the answer under one name before it
// calls the next. Suppose that no rank goes on. Those that wait for something else than a partial call of this process
// set, or for a round 0, are absent from it, whatever set they wait in; the others wait under a name of it, or flush.
// Take the one, i, whose name X was answered the longest ago. Another rank j that has not called X since X's last round
// is blocked under a name Y. Since its last call of X it has called Y at most once, and that call found no round of Y
// missed: Y's last round came before j's last call of X, so before X's last round, a contradiction. So all have voted
// in X or arrived, those who arrived are blocked, and X is ready. This takes that
//   - ranks call the same set of names of this process set in each step, each rank in an order of its own
//     (where they do not, a standstill ends the wait, standstill.h),
//   - late calls are reported by Arrived, and Settle is called after all messages that came together were counted,
//   - a rank flushes all names before it waits for one of them,
//   - what holds a rank up is known in all process sets that it is in.
// With several process sets: if some rank waits under a name, the above holds in that set, and the round is ready. If
// none does, every rank waits in a full operation, a round 0 or a flush: in that of others, the user's own deadlock.
class Votes {
 public:
  struct Rank {
    bool flushing = false;
    bool voted = false;    // in the round under way
    bool arrived = false;  // late, in the round under way
    int64_t seen = 0;      // all rounds before this one have answered its calls, or will when they are performed
  };

  // 0 <= rule.count <= size.
  Votes(int32_t size, QuorumRule rule) : rule_(rule), ranks_(static_cast<std::size_t>(size)) {}

  // These three return false, and change nothing, if the rank waits already under this name. What comes between
  // readiness and Executed() still counts.
  //
  // A call of this rank waits for the round under way.
  bool Vote(int32_t rank);
  // A call of this rank was late: it is answered with all rounds before `round`. May come behind that round.
  bool Arrived(int32_t rank, int64_t round);
  // This rank makes no calls until a round that all ranks enter flushing. Holds over the rounds in between.
  bool Flush(int32_t rank);

  // After messages were counted: true if the round became ready just now, which it does once.
  bool Settle(const Attendance& attendance);
  // The round under way is on its way to all ranks; the next one begins to count. Only when ready.
  void Executed();

  int64_t round() const { return round_; }
  bool ready() const { return ready_; }
  // Whether all ranks flush: the round, when ready, answers the flushes.
  bool closing() const { return flushing_ == ranks_.size(); }
  // Whether a round can become ready without another message about this name.
  bool idle() const { return voted_ == 0 && !closing(); }
  const Rank& rank(int32_t number) const { return ranks_[static_cast<std::size_t>(number)]; }

 private:
  bool Suffices(const Attendance& attendance) const;
  int32_t Designated(const Attendance& attendance) const;

  QuorumRule rule_;
  std::vector<Rank> ranks_;
  std::size_t voted_ = 0, flushing_ = 0;  // so many ranks
  int64_t round_ = 0;
  bool ready_ = false;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_PARTIAL_VOTES_H
