// What a message costs, fitted to measured (bytes, seconds): robust against slow outliers, of which a busy host has
// many.

#ifndef PACELINE_CORE_FUSION_COST_FIT_H
#define PACELINE_CORE_FUSION_COST_FIT_H

#include <vector>

namespace paceline::core {

// Start-up and time per byte of a message: seconds = a_s + b_s_per_byte * bytes.
struct LinearCost {
  double a_s = 0;
  double b_s_per_byte = 0;
};

// One measured message.
struct CostPoint {
  double bytes = 0;
  double seconds = 0;
};

// The line with a >= 0 and b >= 0 nearest to the samples in relative error, so that sizes some decades apart count the
// same. Almost half of the sizes may be off by any factor: the beginning is the line through two sizes with the least
// median error, and sizes far from it lose their weight. The same samples give the same line.
// Throws std::invalid_argument for samples that are not finite, negative, or of fewer than two sizes, and where
// all times are zero.
LinearCost FitLinear(const std::vector<CostPoint>& samples);

// The median time of every size, in order of size, made non-decreasing by pooling neighbours (isotonic regression with
// the number of samples as weight). Throws std::invalid_argument for samples that are not finite, negative, or none.
std::vector<CostPoint> IsotonicMedians(const std::vector<CostPoint>& samples);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_COST_FIT_H
