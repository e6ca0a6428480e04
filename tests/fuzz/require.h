// What must hold whatever the input: a failure is a crash that the fuzzer keeps.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace orrery::fuzz {

inline void require(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "violated: %s\n", what);
    std::abort();
  }
}

}  // namespace orrery::fuzz
