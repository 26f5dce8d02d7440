// Result of a C entry point as a JSON text.

#ifndef PACELINE_BRIDGE_JSON_TEXT_H
#define PACELINE_BRIDGE_JSON_TEXT_H

#include <string>

#include "core/text/json.h"

namespace horovod::paceline {

// The text is valid until the next call in the same thread.
inline const char* JsonText(const ::paceline::core::Json& answer) {
  thread_local std::string kept;
  kept = answer.Text();
  return kept.c_str();
}

}  // namespace horovod::paceline

#endif  // PACELINE_BRIDGE_JSON_TEXT_H
