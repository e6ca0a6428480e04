#include "qemu_bridge/relay/device_description.h"

#include <algorithm>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "qemu_bridge/capabilities.h"
#include "qemu_bridge/codec.h"
#include "qemu_bridge/relay/request.h"

namespace orrery::bridge {
namespace {

constexpr std::uint32_t max_vectors = 2048;  // of MSI-X (PCI Local Bus 3.0 §6.8.2.3)

// Registers that say what a device is (PCI Local Bus 3.0 §6.2.1); `mask` leaves the others out.
struct IdentityRegister {
  std::size_t offset;
  std::uint32_t mask;
  const char* name;
};
constexpr std::array<IdentityRegister, 4> identity{{
    {0x00, 0xffff'ffff, "vendor and device ID"},
    {0x08, 0xffff'ffff, "class code and revision"},
    {0x0c, 0x00ff'0000, "header type"},
    {0x2c, 0xffff'ffff, "subsystem"},
}};

}  // namespace

bool DeviceDescription::in_region(std::uint32_t region, std::uint64_t offset, std::uint64_t size) const {
  return region < wire::region_count && regions[region].size != 0 && offset <= regions[region].size &&
         size <= regions[region].size - offset;
}

std::uint8_t DeviceDescription::capability(std::uint8_t id) const {
  constexpr std::size_t status = 0x06;
  constexpr std::size_t pointer = 0x34;
  constexpr std::size_t first = 0x40;
  if ((config[status] & std::byte{0x10}) == std::byte{0}) {
    return 0;
  }
  auto at = std::to_integer<std::size_t>(config[pointer]) & ~std::size_t{3};
  // No list is longer than the space has dwords.
  for (std::size_t steps = 0; steps < config_bytes / 4 && at >= first; ++steps) {
    if (std::to_integer<std::uint8_t>(config[at]) == id) {
      return static_cast<std::uint8_t>(at);
    }
    at = std::to_integer<std::size_t>(config[at + 1]) & ~std::size_t{3};
  }
  return 0;
}

std::string difference(const DeviceDescription& known, const DeviceDescription& found) {
  for (const IdentityRegister& at : identity) {
    const auto before = load<std::uint32_t>(std::span(known.config).subspan(at.offset)) & at.mask;
    const auto now = load<std::uint32_t>(std::span(found.config).subspan(at.offset)) & at.mask;
    if (before != now) {
      return fmt::format("{} {:#010x} instead of {:#010x}", at.name, now, before);
    }
  }
  if (known.info.num_regions != found.info.num_regions || known.info.num_irqs != found.info.num_irqs ||
      known.info.flags != found.info.flags) {
    return fmt::format("{} regions, {} interrupt indices, flags {:#x} instead of {}, {}, {:#x}", found.info.num_regions,
                       found.info.num_irqs, found.info.flags, known.info.num_regions, known.info.num_irqs,
                       known.info.flags);
  }
  for (std::size_t i = 0; i < wire::region_count; ++i) {
    if (known.regions[i].size != found.regions[i].size || known.regions[i].flags != found.regions[i].flags) {
      return fmt::format("region {} has {:#x} bytes, flags {:#x} instead of {:#x}, {:#x}", i, found.regions[i].size,
                         found.regions[i].flags, known.regions[i].size, known.regions[i].flags);
    }
  }
  for (std::size_t i = 0; i < wire::irq_index_count; ++i) {
    if (known.irqs[i].count != found.irqs[i].count || known.irqs[i].flags != found.irqs[i].flags) {
      return fmt::format("interrupt index {} has {} vectors, flags {:#x} instead of {}, {:#x}", i, found.irqs[i].count,
                         found.irqs[i].flags, known.irqs[i].count, known.irqs[i].flags);
    }
  }
  // The client has the limits of the first negotiation and can't be told of others.
  if (known.version_reply != found.version_reply) {
    return "another protocol version or other capabilities";
  }
  return {};
}

std::vector<std::byte> without_twin_socket(std::span<const std::byte> version_payload) {
  std::vector<std::byte> result(version_payload.begin(), version_payload.end());
  const std::span<const std::byte> data = version_payload.subspan(sizeof(wire::Version));
  if (data.empty()) {
    return result;
  }
  const auto* text = reinterpret_cast<const char*>(data.data());
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(text, text + data.size() - 1, nullptr, false);
  const auto capabilities = json.find("capabilities");
  if (capabilities == json.end() || capabilities->erase("twin_socket") == 0) {
    return result;
  }
  // Strings come from a client and need not be UTF-8.
  const std::string less = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  result.resize(sizeof(wire::Version));
  const auto bytes = std::as_bytes(std::span(less.c_str(), less.size() + 1));
  result.insert(result.end(), bytes.begin(), bytes.end());
  return result;
}

std::optional<DeviceInquiry::Question> DeviceInquiry::question() const {
  switch (step_) {
    case Step::version:
      return Question{wire::Command::version, proposal_};
    case Step::info:
      return Question{wire::Command::device_get_info, payload_of(wire::DeviceInfo{sizeof(wire::DeviceInfo), 0, 0, 0})};
    case Step::regions:
      return Question{wire::Command::device_get_region_info,
                      payload_of(wire::RegionInfo{sizeof(wire::RegionInfo), 0, index_, 0, 0, 0})};
    case Step::irqs:
      return Question{wire::Command::device_get_irq_info,
                      payload_of(wire::IrqInfo{sizeof(wire::IrqInfo), 0, index_, 0})};
    case Step::config:
      return Question{wire::Command::region_read,
                      payload_of(wire::RegionAccess{0, wire::region_config, DeviceDescription::config_bytes})};
    case Step::done:
      break;
  }
  return std::nullopt;
}

std::string DeviceInquiry::take(const wire::Header& header, std::span<const std::byte> payload) {
  if ((header.flags & wire::flag_error) != 0) {
    if (step_ == Step::version && header.error == EBUSY) {
      return "another client has the device";
    }
    return fmt::format("it answers command {} with the error '{}'", header.command,
                       std::generic_category().message(static_cast<int>(header.error)));
  }
  switch (step_) {
    case Step::version:
      return take_version(payload);
    case Step::info:
      return take_info(payload);
    case Step::regions:
      return take_region(payload);
    case Step::irqs:
      return take_irq(payload);
    case Step::config:
      return take_config(payload);
    case Step::done:
      break;
  }
  return "it answers what was not asked";
}

std::string DeviceInquiry::take_version(std::span<const std::byte> payload) {
  if (payload.size() < sizeof(wire::Version) || payload.size() > sizeof(wire::Version) + max_version_data ||
      load<wire::Version>(payload).major != protocol_major) {
    return "it speaks another version of the protocol";
  }
  found_.version_reply.assign(payload.begin(), payload.end());
  step_ = Step::info;
  return {};
}

std::string DeviceInquiry::take_info(std::span<const std::byte> payload) {
  const auto info = decode_device_info(payload);
  if (!info || info.value.num_regions <= wire::region_config || (info.value.flags & wire::device_flag_pci) == 0) {
    return "it has no PCI device";
  }
  found_.info = info.value;
  found_.info.argsz = sizeof(wire::DeviceInfo);
  step_ = Step::regions;
  return {};
}

std::string DeviceInquiry::take_region(std::span<const std::byte> payload) {
  // Capabilities may follow; nobody asked for them.
  if (payload.size() < sizeof(wire::RegionInfo) || load<wire::RegionInfo>(payload).index != index_) {
    return fmt::format("its description of region {} is malformed", index_);
  }
  const auto info = load<wire::RegionInfo>(payload);
  found_.regions[index_] = {sizeof(wire::RegionInfo),
                            info.flags & (wire::region_flag_read | wire::region_flag_write),
                            index_,
                            0,
                            info.size,
                            info.offset};
  if (++index_ == std::min(found_.info.num_regions, wire::region_count)) {
    index_ = 0;
    step_ = Step::irqs;
    if (found_.regions[wire::region_config].size < DeviceDescription::config_bytes) {
      return "it has no configuration space";
    }
  }
  // No question about interrupts if there are none.
  if (step_ == Step::irqs && found_.info.num_irqs == 0) {
    step_ = Step::config;
  }
  return {};
}

std::string DeviceInquiry::take_irq(std::span<const std::byte> payload) {
  if (payload.size() != sizeof(wire::IrqInfo) || load<wire::IrqInfo>(payload).index != index_) {
    return fmt::format("its description of interrupt index {} is malformed", index_);
  }
  const auto info = load<wire::IrqInfo>(payload);
  if (info.count > max_vectors) {
    return fmt::format("interrupt index {} has {} vectors; MSI-X has at most {}", index_, info.count, max_vectors);
  }
  found_.irqs[index_] = {sizeof(wire::IrqInfo), info.flags, index_, info.count};
  if (++index_ == std::min(found_.info.num_irqs, wire::irq_index_count)) {
    index_ = 0;
    step_ = Step::config;
  }
  return {};
}

std::string DeviceInquiry::take_config(std::span<const std::byte> payload) {
  if (payload.size() != sizeof(wire::RegionAccess) + DeviceDescription::config_bytes) {
    return "its configuration space can't be read";
  }
  std::copy(payload.begin() + sizeof(wire::RegionAccess), payload.end(), found_.config.begin());
  step_ = Step::done;
  return {};
}

}  // namespace orrery::bridge
