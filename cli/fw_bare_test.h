// `orrery fw test --elf … --map …`: runs a bare-metal test program once and says what came of it.
#pragma once

#include <string>
#include <vector>

namespace orrery::cli {

struct FwBareTestOptions {
  std::string elf;
  std::string map;                  // empty: the RNIC's own registers
  std::vector<std::string> faults;  // "read NAME VALUE [COUNT]", "write NAME VALUE [COUNT]", "dma CHANNEL [COUNT]"
  std::string junit;                // file; empty: none
  std::string coverage;             // file for lcov; empty: none
  unsigned seconds = 60;
};

// One line of a test program's console.
struct FwBareResult {
  std::string name;
  bool passed = false;
  std::string why;  // of a failure
};
// "PASS name", "FAIL name", "FAIL name: why"; everything else is passed over. At most 10000.
[[nodiscard]] std::vector<FwBareResult> bare_test_results(const std::string& console);
// JUnit's XML, of one suite. `failure`: of the run as a whole; empty: none.
[[nodiscard]] std::string bare_test_xml(const std::string& suite, const std::vector<FwBareResult>& results,
                                        const std::string& failure);

// Exit status: 0 if every test passed, there was one at least, and the program ended with status 0. Throws Error.
int fw_bare_test(const FwBareTestOptions& options);

}  // namespace orrery::cli
