#include "core/settings/comparison.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <sstream>
#include <utility>

namespace paceline::core {

namespace {

using Ranks = std::vector<size_t>;

// One setting on all ranks: its default, and the value on each rank that has another one.
struct Setting {
  std::string name, otherwise;
  std::map<size_t, std::string> values;

  const std::string& On(size_t rank) const {
    const auto found = values.find(rank);
    return found == values.end() ? otherwise : found->second;
  }
};

// In the order in which ranks name them.
std::vector<Setting> Read(const std::vector<std::string>& texts) {
  std::vector<Setting> settings;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream text(texts[rank]);
    std::string name, value, otherwise;
    while (std::getline(text, name, kFieldEnd) && std::getline(text, value, kFieldEnd) &&
           std::getline(text, otherwise, kFieldEnd)) {
      auto one = std::find_if(settings.begin(), settings.end(), [&](const auto& other) { return other.name == name; });
      if (one == settings.end()) {
        settings.push_back({name, otherwise, {}});
        one = settings.end() - 1;
      }
      one->values[rank] = value;
    }
  }
  return settings;
}

// "rank 2", "ranks 0, 3-5"; `ranks` ascend.
std::string Text(const Ranks& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += (first == 0 ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) {
      text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    }
  }
  return text;
}

// "PACELINE_EXCHANGE: sync (default) on ranks 0, 2, 3; solo on rank 1"
std::string Line(const Setting& setting, size_t size) {
  std::vector<std::pair<std::string, Ranks>> by_value;
  for (size_t rank = 0; rank < size; ++rank) {
    const auto& value = setting.On(rank);
    const auto same = std::find_if(by_value.begin(), by_value.end(), [&](auto& one) { return one.first == value; });
    if (same == by_value.end()) {
      by_value.push_back({value, {rank}});
    } else {
      same->second.push_back(rank);
    }
  }
  std::string line = setting.name;
  for (const auto& [value, ranks] : by_value) {
    const bool is_default = value == setting.otherwise;
    line += (&value == &by_value.front().first ? ": " : "; ") +
            (is_default && value.empty() ? "not set" : value + (is_default ? " (default)" : "")) + " on " + Text(ranks);
  }
  return line;
}

// Settings that are not variables describe what is installed.
bool IsVariable(const Setting& setting) { return setting.name.find(' ') == std::string::npos; }

std::string Remedy(const std::vector<Setting>& differing) {
  std::string mpirun, mpiexec, srun, ssh, remedy;
  for (const auto& one : differing) {
    if (!IsVariable(one)) {
      remedy = "Install the same Paceline on every host, and run `paceline horovod install` there.";
      continue;
    }
    mpirun += " -x " + one.name;
    mpiexec += (mpiexec.empty() ? "" : ",") + one.name;
    srun += "," + one.name;
    ssh += " " + one.name + "=VALUE";
  }
  if (!mpirun.empty()) {
    remedy += (remedy.empty() ? "" : "\n") + std::string("Give these variables the same values on all ranks. ") +
              "Launchers that do not export them: mpirun" + mpirun + " (Open MPI), mpiexec -genvlist " + mpiexec +
              " (MPICH), srun --export=ALL" + srun + ", ssh HOST env" + ssh +
              " COMMAND. `paceline run` and horovodrun export them.";
  }
  return remedy;
}

}  // namespace

std::string ReportOfDiffering(const std::vector<std::string>& texts) {
  std::vector<Setting> differing;
  for (auto& setting : Read(texts)) {
    for (size_t rank = 1; rank < texts.size(); ++rank) {
      if (setting.On(rank) != setting.On(0)) {
        differing.push_back(std::move(setting));
        break;
      }
    }
  }
  if (differing.empty()) {
    return "";
  }
  std::string report = "Settings differ between ranks and must be the same on all of them:";
  for (const auto& one : differing) {
    report += "\n  " + Line(one, texts.size());
  }
  return report + "\n" + Remedy(differing);
}

// FNV-1a.
uint64_t Digest(const std::string& text) {
  uint64_t digest = 14695981039346656037U;
  for (const char one : text) {
    digest = (digest ^ static_cast<unsigned char>(one)) * 1099511628211U;
  }
  return digest;
}

}  // namespace paceline::core
