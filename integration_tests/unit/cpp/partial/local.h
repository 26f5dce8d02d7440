// What a modelled rank has under one name: the state, and the data that a bridge would have with it.

#ifndef PACELINE_UNIT_PARTIAL_LOCAL_H
#define PACELINE_UNIT_PARTIAL_LOCAL_H

#include <cstdint>
#include <utility>

#include "core/partial/round_state.h"
#include "partial/job.h"

namespace partial_model {

using paceline::core::RoundState;

// `State` is RoundState, or one with a fault.
template <typename State>
struct Local {
  State state;
  int64_t send = 0, missed = 0;
  int64_t answers = 0;  // all of them, added up
  int64_t results = 0;  // the same of all rounds
  int64_t weights = 0;  // rounds that the oldest contribution in the send buffer knew, or was excused from
  int64_t excused = 0;  // rounds since the last answer that began while the rank was absent

  RoundState::Reply Call(int64_t contribution) {
    if (state.pending() == 0) {
      weights = state.executed() - state.missed() + excused;
    }
    send += contribution;
    const RoundState::Reply reply = state.Call();
    if (reply.kind == RoundState::Reply::Kind::kAnswered) {
      answers += std::exchange(missed, 0);
      excused = 0;
    }
    return reply;
  }

  void Begin(const Job& job, int rank, Round& round) {
    const int64_t max_lag = job.Promised().max_lag;
    Expect(max_lag == 0 || state.pending() == 0 || state.begun() - weights <= max_lag,
           "a contribution is older than max_lag");
    const RoundState::Departure departure = state.Begin();
    if (departure.fresh || departure.carried > 0) {
      round.sum += send;
      send = job.clears_send ? 0 : send;
      ++round.contributing;
    }
    excused += (round.absent >> rank) & 1;
    round.fresh |= (departure.fresh ? 1U : 0U) << rank;
    round.flushing += departure.flushing ? 1 : 0;
  }

  void End(const Round& round) {
    results += round.sum;
    missed += round.sum;
    if (state.End(round.closing) > 0) {
      answers += std::exchange(missed, 0);
      excused = 0;
    }
  }

  void Check() const {
    Expect(answers + missed == results, "a result is lost or given twice");
    Expect((missed == 0) == (state.missed() == 0), "results missed and not counted");
  }
};

}  // namespace partial_model

#endif  // PACELINE_UNIT_PARTIAL_LOCAL_H
