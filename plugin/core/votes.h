// When a round of a partial collective is ready: the coordinator's count of the votes for one name.

#ifndef PACELINE_CORE_VOTES_H
#define PACELINE_CORE_VOTES_H

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

// A rank has called in a round if it voted in it, flushes, or arrived and is blocked: its late call was answered with
// results of rounds before, its contribution waits in its send buffer for this one, and it makes no further call before
// its vote under another name is answered. (One that arrived and goes on will call again; to count it at once would
// begin rounds before their initiator came.) A rank is present, absent (no calls of it are to be expected for now) or
// flushing (none until all ranks flush). The first of these that holds decides:
//
//   1  all ranks flush                                      ready, and closing
//   2  nobody voted                                         not ready
//   3  every rank that is present has called                ready
//   4  round 0, or all ranks are required                   not ready
//   5  max_lag and a present rank that has not called       not ready
//      missed the last max_lag rounds
//   6  the initiator voted, or `count` ranks have           ready
//
// In 3, round 0 (nobody else knows the shape) and rounds with RequireAll wait for absent ranks, too. An absent
// initiator is replaced by the next rank that is present or voted.
//
// Line 3 is what keeps names from waiting for each other, where a rank waits for the answer under one name before it
// calls the next. Suppose all ranks that do not flush are blocked. Take the one, i, whose name X was answered the
// longest ago. Any other rank j that has not called X since X's last round is blocked under a name that was answered
// before that round, so before i's answer: a contradiction. So all have voted in X or arrived, those who arrived are
// blocked, and X is ready. This takes that
//   - ranks call the same set of names in each step, each rank in an order of its own,
//   - late calls are reported by Arrived, and Settle is told after all messages that came together who is blocked,
//   - a rank flushes all names before it waits for one of them,
//   - a rank that is blocked by anything else that needs other ranks, such as a full allreduce, is absent meanwhile.
class Votes {
 public:
  enum class Standing : uint8_t { kPresent, kAbsent, kFlushing };

  // What a message did. The round becomes ready once; what comes between that and Executed() still counts.
  enum class Tally : uint8_t {
    kCounted,
    kReady,   // the round became ready just now
    kDefect,  // this rank waits already under this name; nothing was changed
  };

  struct Rank {
    Standing standing = Standing::kPresent;
    bool voted = false;    // in the round under way
    bool arrived = false;  // late, in the round under way
    int64_t seen = 0;      // all rounds before this one have answered its calls, or will when they are performed
  };

  // 0 <= rule.count <= size.
  Votes(int32_t size, QuorumRule rule) : rule_(rule), ranks_(static_cast<std::size_t>(size)) {}

  // A call of this rank waits for the round under way. That of an absent rank counts; it stays absent.
  Tally Vote(int32_t rank);
  // A call of this rank was late: it is answered with all rounds before `round`. May come behind that round.
  Tally Arrived(int32_t rank, int64_t round);
  // After messages were counted: `blocked`, by rank, are those that voted under any name and were not answered yet.
  Tally Settle(const std::vector<bool>& blocked);
  // This rank is not waited for until Present() or a closing round.
  Tally Absent(int32_t rank);
  void Present(int32_t rank);
  // This rank makes no calls until a round that all ranks enter flushing. Holds over the rounds in between.
  Tally Flush(int32_t rank);
  // The round under way waits until every rank, absent ones too, has called. Before it is ready.
  void RequireAll() { require_all_ = true; }
  // The round is on its way to all ranks; the next one begins to count. Only when ready.
  void Executed();

  int64_t round() const { return round_; }
  bool ready() const { return ready_; }
  // Whether all ranks flush: the round, when ready, answers the flushes.
  bool closing() const;
  const Rank& rank(int32_t number) const { return ranks_[static_cast<std::size_t>(number)]; }
  // For messages: those that have not called in the round under way.
  std::vector<int32_t> Missing() const;

 private:
  static bool Called(const Rank& rank, bool blocked = false);
  bool Suffices(const std::vector<bool>* blocked) const;
  int32_t Designated() const;
  Tally Count(const std::vector<bool>* blocked = nullptr);

  QuorumRule rule_;
  std::vector<Rank> ranks_;
  int64_t round_ = 0;
  bool ready_ = false, require_all_ = false;
};

}  // namespace paceline::core

#endif  // PACELINE_CORE_VOTES_H
