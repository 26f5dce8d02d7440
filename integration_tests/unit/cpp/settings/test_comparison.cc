#include <doctest/doctest.h>

#include <string>

#include "core/settings/comparison.h"

namespace {

using namespace paceline::core;

std::string Setting(const std::string& name, const std::string& value, const std::string& otherwise) {
  return name + kFieldEnd + value + kFieldEnd + otherwise + kFieldEnd;
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("ranks with the same settings have nothing to report") {
  const auto solo = Setting("PACELINE_EXCHANGE", "solo", "sync");
  CHECK(ReportOfDiffering({"", "", ""}).empty());
  CHECK(ReportOfDiffering({solo, solo}).empty());
  CHECK(ReportOfDiffering({solo}).empty());
  // A rank that names a setting at its default has what others have that do not name it.
  CHECK(ReportOfDiffering({"", Setting("PACELINE_EXCHANGE", "sync", "sync")}).empty());
}

TEST_CASE("a difference names the variable, the ranks, the values and each launcher") {
  const auto solo = Setting("PACELINE_EXCHANGE", "solo", "sync");
  const auto both = solo + Setting("HOROVOD_CPU_OPERATIONS", "mpi", "");
  const auto found = ReportOfDiffering({"", solo, both, "", "", ""});
  CHECK(Has(found, "\n  PACELINE_EXCHANGE: sync (default) on ranks 0, 3-5; solo on ranks 1, 2\n"));
  CHECK(Has(found, "\n  HOROVOD_CPU_OPERATIONS: not set on ranks 0, 1, 3-5; mpi on rank 2\n"));
  for (const auto* one : {"mpirun -x PACELINE_EXCHANGE -x HOROVOD_CPU_OPERATIONS (",
                          "mpiexec -genvlist PACELINE_EXCHANGE,HOROVOD_CPU_OPERATIONS (",
                          "srun --export=ALL,PACELINE_EXCHANGE,HOROVOD_CPU_OPERATIONS,",
                          "ssh HOST env PACELINE_EXCHANGE=VALUE HOROVOD_CPU_OPERATIONS=VALUE COMMAND"}) {
    CHECK_MESSAGE(Has(found, one), one);
  }
}

TEST_CASE("another build is a matter of installing") {
  const auto found =
      ReportOfDiffering({Setting("Build of Paceline", "1 (a)", ""), Setting("Build of Paceline", "1 (b)", "")});
  CHECK(Has(found, "Build of Paceline: 1 (a) on rank 0; 1 (b) on rank 1\n"));
  CHECK(Has(found, "paceline horovod install"));
  CHECK(!Has(found, "mpirun"));
}

TEST_CASE("digests differ where texts do") {
  CHECK(Digest("") == 14695981039346656037U);
  CHECK(Digest("ab") != Digest("ba"));
  CHECK(Digest("a") == 0xaf63dc4c8601ec8cU);
}

}  // namespace
