// A trace that knows a platform's links and functions by name.
#pragma once

#include <memory>

#include "pcie/tlp_trace.h"
#include "systemc_models/server/platform.h"

namespace orrery::cli {

// Attaches itself to the platform's simulation as its observer; the platform must outlive its use.
std::unique_ptr<pcie::TlpTrace> make_platform_trace(models::Platform& platform);

}  // namespace orrery::cli
