// The parsed document behind ConfigDocument: for config.cpp and config_reader.cpp only, so that the TOML
// library's large header stays out of everything else.
#pragma once

#include <string>
#include <vector>

#include <toml++/toml.h>

#include "common/config.h"

namespace orrery {

struct ConfigDocument::State {
  std::string name = "configuration";
  toml::table root;
  struct Override {
    std::string path;
    std::string assignment;
  };
  std::vector<Override> overrides;
};

// "the text \"x\"", "7", "a table": how messages name what was found.
std::string describe_node(const toml::node& node);

}  // namespace orrery
