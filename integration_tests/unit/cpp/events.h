// Scripts of events for tests of state machines: what happens and what has to come of it, as a line of text.

#ifndef PACELINE_UNIT_EVENTS_H
#define PACELINE_UNIT_EVENTS_H

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "doctest/doctest.h"

namespace events {

// Makes events happen that a script names. A word of a script is EVENT, or EVENT:RESULT; an event is a name and the
// numbers that it needs, as in "late2,1:yes". Results are compared as text; one that is empty is not written.
class Machine {
 public:
  Machine() = default;
  Machine(const Machine&) = delete;  // events refer to it
  Machine& operator=(const Machine&) = delete;

  void Play(const std::string& script) {
    std::istringstream words(script);
    std::string word, expected, played;
    while (words >> word) {
      const std::string event = word.substr(0, word.find(':'));
      const std::string result = Happen(event);
      expected += word + " ";
      played += event + (result.empty() ? "" : ":") + result + " ";
    }
    CHECK(played == expected);
  }

 protected:
  // `happen` takes none, one, two (as int32_t, too) or all numbers. It returns nothing, text, a number, numbers, or a
  // bool (yes, no).
  template <typename Do>
  void On(const std::string& name, Do happen) {
    events_[name] = [happen](const std::vector<int64_t>& numbers) {
      if constexpr (std::is_invocable_v<Do>) {
        return AsText(happen);
      } else if constexpr (std::is_invocable_v<Do, std::vector<int64_t>>) {
        return AsText([&] { return happen(numbers); });
      } else if constexpr (std::is_invocable_v<Do, int64_t>) {
        return AsText([&] { return happen(numbers.at(0)); });
      } else {
        return AsText([&] { return happen(numbers.at(0), numbers.at(1)); });
      }
    };
  }

  virtual ~Machine() = default;

  bool Known(const std::string& event) const {
    return events_.count(event.substr(0, event.find_first_of("-0123456789"))) > 0;
  }

  virtual std::string Happen(const std::string& event) {
    const auto at = std::min(event.find_first_of("-0123456789"), event.size());
    std::vector<int64_t> numbers;
    std::istringstream rest(event.substr(at));
    for (std::string number; std::getline(rest, number, ',');) {
      numbers.push_back(std::stoll(number));
    }
    CAPTURE(event);
    return events_.at(event.substr(0, at))(numbers);
  }

 private:
  template <typename Do>
  static std::string AsText(const Do& happen) {
    using Result = decltype(happen());
    if constexpr (std::is_void_v<Result>) {
      happen();
      return "";
    } else if constexpr (std::is_same_v<Result, bool>) {
      return happen() ? "yes" : "no";
    } else if constexpr (std::is_arithmetic_v<Result>) {
      return std::to_string(happen());
    } else if constexpr (std::is_same_v<Result, std::vector<int32_t>>) {
      std::string text;
      for (const int32_t number : happen()) {
        text += (text.empty() ? "" : ",") + std::to_string(number);
      }
      return text;
    } else {
      return happen();
    }
  }

  std::map<std::string, std::function<std::string(const std::vector<int64_t>&)>> events_;
};

// A row of a table of scripts.
struct Case {
  const char* claim;
  const char* script;
};

// Plays each script on a machine of its own.
template <typename Machine, typename Cases>
void PlayAll(const Cases& cases) {
  for (const Case& one : cases) {
    CAPTURE(one.claim);
    Machine machine;
    machine.Play(one.script);
  }
}

}  // namespace events

#endif  // PACELINE_UNIT_EVENTS_H
