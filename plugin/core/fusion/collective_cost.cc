#include "core/fusion/collective_cost.h"

#include <cmath>
#include <stdexcept>

#include "core/arguments.h"

namespace paceline::core {

namespace {

constexpr NameTable<AllreduceAlgorithm, 5> kAlgorithms{{
    {"binary-tree", AllreduceAlgorithm::kBinaryTree},
    {"recursive-doubling", AllreduceAlgorithm::kRecursiveDoubling},
    {"recursive-halving-doubling", AllreduceAlgorithm::kRecursiveHalvingDoubling},
    {"double-binary-trees", AllreduceAlgorithm::kDoubleBinaryTrees},
    {"ring", AllreduceAlgorithm::kRing},
}};

}  // namespace

AllreduceAlgorithm AllreduceAlgorithmOf(const std::string& name) { return ByName("all-reduce", kAlgorithms, name); }

LinearCost AllreduceCost(AllreduceAlgorithm algorithm, int64_t workers, double alpha_s, double beta_s_per_byte,
                         double gamma_s_per_byte) {
  const double alpha = RequireNotNegative("alpha", alpha_s);
  const double beta = RequireNotNegative("beta", beta_s_per_byte);
  const double gamma = RequireNotNegative("gamma", gamma_s_per_byte);
  if (workers < 1) {
    throw std::invalid_argument("an all-reduce needs at least one worker, not " + std::to_string(workers));
  }
  if (workers == 1) {
    return {0, 0};
  }
  const auto n = static_cast<double>(workers);
  const double steps = std::log2(n);
  switch (algorithm) {
    case AllreduceAlgorithm::kBinaryTree:
      return {2 * alpha * steps, (2 * beta + gamma) * steps};
    case AllreduceAlgorithm::kRecursiveDoubling:
      return {alpha * steps, (beta + gamma) * steps};
    case AllreduceAlgorithm::kRecursiveHalvingDoubling:
      return {2 * alpha * steps, 2 * beta - (2 * beta + gamma) / n + gamma};
    case AllreduceAlgorithm::kDoubleBinaryTrees:
      // The paper prints 2 log N; the alpha is evidently missing.
      return {2 * alpha * steps, beta + gamma};
    case AllreduceAlgorithm::kRing:
      return {2 * (n - 1) * alpha, (n - 1) / n * (2 * beta + gamma)};
  }
  throw std::invalid_argument("no such all-reduce algorithm");
}

}  // namespace paceline::core
