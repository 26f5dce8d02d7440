// Settings that all ranks must have in common, and the report of those that differ.

#ifndef PACELINE_CORE_SETTINGS_COMPARISON_H
#define PACELINE_CORE_SETTINGS_COMPARISON_H

#include <cstdint>
#include <string>
#include <vector>

namespace paceline::core {

// A rank's settings are one text: for each setting that is not at its default, name, value and default, each of them
// followed by kFieldEnd. Two ranks with the same settings have the same text if they name them in the same order.
constexpr char kFieldEnd = '\x1f';

// Names, ranks and values of the settings that differ, and the remedy; empty: all ranks have the same settings.
// `texts`: by rank.
std::string ReportOfDiffering(const std::vector<std::string>& texts);

// Digest of a text, the same on every machine.
uint64_t Digest(const std::string& text);

}  // namespace paceline::core

#endif  // PACELINE_CORE_SETTINGS_COMPARISON_H
