#include "systemc_models/plugin/plugin.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "common/error.h"
#include "systemc_models/plugin/plugin_function.h"
#include "systemc_models/plugin/shared_object.h"
#include "systemc_models/plugin/tlm_adapter_module.h"

namespace orrery::models {

namespace {

constexpr const char* entry_point = "orrery_tlm_device";
constexpr const char* build_remedy =
    "build it as a shared library for this machine, linked to Orrery::plugin (find_package(Orrery))";

bool is_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string version_text(std::uint32_t version) {
  return fmt::format("{}.{}.{}", version >> 16, (version >> 8) & 0xffU, version & 0xffU);
}

const TlmDevicePlugin& load(const std::string& device, const std::string& path) {
  const std::string problem = shared_object_problem(path);
  if (!problem.empty()) {
    throw Error(fmt::format("device {}: {} can't be loaded: {}", device, path, problem), build_remedy);
  }
  dlerror();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = dlerror();
    throw Error(fmt::format("device {}: {} can't be loaded: {}", device, path, why == nullptr ? "unknown" : why),
                build_remedy);
  }
  const auto* plugin = static_cast<const TlmDevicePlugin*>(dlsym(library, entry_point));
  if (plugin == nullptr) {
    throw Error(fmt::format("device {}: {} has no symbol {}", device, path, entry_point),
                "put ORRERY_TLM_DEVICE(description, factory) into one of its source files");
  }
  if (plugin->abi != tlm_device_abi) {
    throw Error(fmt::format("device {}: {} was built for plug-in interface {}, this program has {}", device, path,
                            plugin->abi, tlm_device_abi),
                "rebuild it against the Orrery that is to load it");
  }
  if (plugin->systemc_version != systemc_version) {
    throw Error(fmt::format("device {}: {} was built with SystemC {}, this program with {}", device, path,
                            version_text(plugin->systemc_version), version_text(systemc_version)),
                "rebuild it with the SystemC that Orrery uses");
  }
  if (plugin->create == nullptr) {
    throw Error(fmt::format("device {}: {} has no factory", device, path), "give ORRERY_TLM_DEVICE a function");
  }
  return *plugin;
}

std::string sc_name(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

}  // namespace

std::string find_plugin(const std::string& device, const std::string& model) {
  if (model.find('/') != std::string::npos) {
    if (!is_file(model)) {
      throw Error(fmt::format("device {}: model {}: no such file", device, model),
                  "give the path of a shared object, or \"gpu\" or \"rnic\"");
    }
    return model;
  }
  const char* variable = std::getenv("ORRERY_PLUGIN_PATH");
  std::string directories = variable == nullptr ? "" : variable;
  for (std::size_t start = 0; start < directories.size();) {
    const std::size_t end = std::min(directories.find(':', start), directories.size());
    std::string path = directories.substr(start, end - start) + "/" + model;
    if (end > start && is_file(path)) {
      return path;
    }
    start = end + 1;
  }
  throw Error(fmt::format("device {}: model {} is not built in, and no such file is in ORRERY_PLUGIN_PATH ({})", device,
                          model, directories.empty() ? "not set" : directories),
              "use \"gpu\", \"rnic\", or the path of a shared object (./" + model + ")");
}

Device make_plugin(const ServerConfig& config, const Topology::Endpoint& endpoint, pcie::EventHost& host) {
  const std::string path = find_plugin(endpoint.name, endpoint.model);
  const TlmDevicePlugin& plugin = load(endpoint.name, path);
  auto adapter = std::make_unique<TlmAdapter>(sc_name(endpoint.name + "_slot").c_str(), endpoint.name,
                                              config.time_mode == TimeMode::timed,
                                              PluginParameters(endpoint.name, endpoint.params), host);
  std::unique_ptr<sc_core::sc_module> model;
  try {
    model = plugin.create(*adapter);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("device {}: the factory of {} failed: {}", endpoint.name, path, error.what()));
  } catch (...) {
    throw Error(fmt::format("device {}: the factory of {} failed with an exception that is no std::exception",
                            endpoint.name, path));
  }
  if (model == nullptr) {
    throw Error(fmt::format("device {}: the factory of {} returned no model", endpoint.name, path));
  }
  adapter->parameters.throw_if_unknown();
  adapter->take(std::move(model));

  FunctionLink link;
  link.generation = endpoint.link.generation;
  link.width = endpoint.link.width;
  link.max_payload = config.pcie.mps_bytes;
  PluginFunction function = make_plugin_function(endpoint.name, adapter->function, link);
  adapter->set_msix_bar(function.msix_bar);

  Device device;
  device.bars = function.bars;
  device.config_space = std::move(function.config_space);
  device.model = std::move(adapter);
  return device;
}

}  // namespace orrery::models
