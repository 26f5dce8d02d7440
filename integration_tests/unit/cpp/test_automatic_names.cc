#include <doctest/doctest.h>

#include "core/automatic_names.h"

using paceline::core::AutomaticNames;

TEST_CASE("each kind has its own count") {
  AutomaticNames names;
  CHECK(names.Next("allreduce") == "allreduce.noname.0.0");
  CHECK(names.Next("allreduce") == "allreduce.noname.0.1");
  CHECK(names.Next("broadcast") == "broadcast.noname.0.0");
}

TEST_CASE("a meeting makes uneven counts even, and never gives a name twice") {
  AutomaticNames busy, idle;
  for (int n = 0; n < 5; ++n) {
    busy.Next("allreduce");
  }
  busy.Meet();
  idle.Meet();
  CHECK(busy.Next("allreduce") == idle.Next("allreduce"));
  CHECK(busy.Next("allreduce") == "allreduce.noname.1.1");
}

TEST_CASE("a new world begins at the beginning, as new processes in it do") {
  AutomaticNames survivor, newcomer;
  survivor.Next("allreduce");
  survivor.Meet();
  survivor.Reset();
  CHECK(survivor.Next("allreduce") == newcomer.Next("allreduce"));
}
