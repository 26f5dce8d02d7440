// When the messages of a step would begin and end: for given merge groups, and for Horovod's own timer.

#ifndef PACELINE_CORE_FUSION_PREDICTION_H
#define PACELINE_CORE_FUSION_PREDICTION_H

#include <vector>

#include "core/fusion/armed_messages.h"
#include "core/fusion/cost_model.h"
#include "core/fusion/merge_groups.h"

namespace paceline::core {

// Times on the clock of the gradients' readiness.
struct Prediction {
  std::vector<double> starts_s;  // by group
  std::vector<double> ends_s;    // by group
  double finish_s = 0;           // the end of the last group; 0 if there is none
  double exposed_s = 0;          // from the readiness of the last gradient to the finish
};

// One group after the other, each as soon as its last member is ready and the previous one has ended.
// Throws std::invalid_argument for gradients or groups that are not valid.
Prediction Predict(const std::vector<Gradient>& gradients, const Groups& groups, const CostModel& cost);

// The same where steps are armed: messages behind the first group's need no round and may overlap (armed_messages.h).
// A group starts with the first of its messages. Gradients may go in parts, but for those of the first group. Throws as
// Predict, and for costs that ValidateArmedCosts refuses.
Prediction PredictArmed(const std::vector<Gradient>& gradients, const Groups& groups, const ArmedCosts& costs);

// Horovod's own way of merging.
struct StockTiming {
  double coordination_s = 0;   // one round of coordination, paid once in each cycle
  double cycle_s = 0;          // HOROVOD_CYCLE_TIME: the least time from one cycle's begin to the next one's
  double threshold_bytes = 0;  // HOROVOD_FUSION_THRESHOLD
};

struct StockPrediction {
  Groups groups;
  Prediction prediction;
};

// What Horovod's background thread would send, and when. It wakes at time 0 and then again and again; what is ready
// when a cycle begins is merged in order of readiness, by type, up to the threshold, and sent after one round of
// coordination. A type that does not fit is passed over as Horovod does it: while what was passed over would itself
// still fit beside the message. The next cycle begins when the work is done and `cycle_s` have passed. `cost` is that
// of the messages alone, without coordination.
// Throws std::invalid_argument for gradients that are not valid and for times or bytes not finite or negative.
StockPrediction PredictStock(const std::vector<Gradient>& gradients, const CostModel& cost, const StockTiming& timing);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_PREDICTION_H
