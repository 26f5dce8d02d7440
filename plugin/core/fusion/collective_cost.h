// What an all-reduce costs, from the network's constants: Table 2 of the MG-WFBP paper.

#ifndef PACELINE_CORE_FUSION_COLLECTIVE_COST_H
#define PACELINE_CORE_FUSION_COLLECTIVE_COST_H

#include <cstdint>
#include <string>

#include "core/fusion/cost_fit.h"

namespace paceline::core {

// How an all-reduce moves and adds its bytes.
enum class AllreduceAlgorithm : int32_t {
  kBinaryTree,
  kRecursiveDoubling,
  kRecursiveHalvingDoubling,
  kDoubleBinaryTrees,
  kRing,
};

// "binary-tree", "recursive-doubling", "recursive-halving-doubling", "double-binary-trees" or "ring".
// Throws std::invalid_argument for any other name, with the list of them.
AllreduceAlgorithm AllreduceAlgorithmOf(const std::string& name);

// Start-up and time per byte of an all-reduce among `workers`. alpha_s: start-up of a point-to-point message;
// beta_s_per_byte: its transfer; gamma_s_per_byte: adding. The paper assumes a power of two; between powers the
// logarithm is taken as it is. One worker pays nothing. Throws std::invalid_argument for fewer than one worker and for
// constants that are not finite or negative.
LinearCost AllreduceCost(AllreduceAlgorithm algorithm, int64_t workers, double alpha_s, double beta_s_per_byte,
                         double gamma_s_per_byte);

}  // namespace paceline::core

#endif  // PACELINE_CORE_FUSION_COLLECTIVE_COST_H
