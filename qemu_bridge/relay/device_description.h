// What a vfio-user server tells of its device, asked for by the relay itself.
//
// The relay answers its client's questions from the first server's description, and takes a later server
// only if its device is the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qemu_bridge/protocol.h"

namespace orrery::bridge {

struct DeviceDescription {
  // Bytes of configuration space that are kept: the header and the capabilities (PCI Local Bus 3.0 §6.1).
  static constexpr std::uint32_t config_bytes = 256;

  std::vector<std::byte> version_reply;  // payload of the reply to VFIO_USER_VERSION
  wire::DeviceInfo info{};
  // Mapping is taken out: a mapping of a dead server's memory would stay in the client, unseen by the next
  // server.
  std::array<wire::RegionInfo, wire::region_count> regions{};
  std::array<wire::IrqInfo, wire::irq_index_count> irqs{};
  std::array<std::byte, config_bytes> config{};

  // The range lies in a region that exists.
  [[nodiscard]] bool in_region(std::uint32_t region, std::uint64_t offset, std::uint64_t size) const;
  // Offset of the capability of this ID, 0 for none (PCI Local Bus 3.0 §6.7).
  [[nodiscard]] std::uint8_t capability(std::uint8_t id) const;
};

// Empty if a client of `known` can go on with `found`; else the first difference, in English.
[[nodiscard]] std::string difference(const DeviceDescription& known, const DeviceDescription& found);

// VFIO_USER_VERSION's payload without the capability twin_socket: the relay has one stream to each side. The
// payload must be acceptable to decode_version().
[[nodiscard]] std::vector<std::byte> without_twin_socket(std::span<const std::byte> version_payload);

// Asks one server for its description, a question at a time.
class DeviceInquiry {
 public:
  // `proposal`: payload of VFIO_USER_VERSION.
  explicit DeviceInquiry(std::vector<std::byte> proposal) : proposal_(std::move(proposal)) {}

  struct Question {
    wire::Command command;
    std::vector<std::byte> payload;
  };
  // None: the description is complete.
  [[nodiscard]] std::optional<Question> question() const;
  // The reply to the question; empty, or what is wrong with it.
  [[nodiscard]] std::string take(const wire::Header& header, std::span<const std::byte> payload);

  [[nodiscard]] DeviceDescription& description() { return found_; }

 private:
  enum class Step : std::uint8_t { version, info, regions, irqs, config, done };

  std::string take_version(std::span<const std::byte> payload);
  std::string take_info(std::span<const std::byte> payload);
  std::string take_region(std::span<const std::byte> payload);
  std::string take_irq(std::span<const std::byte> payload);
  std::string take_config(std::span<const std::byte> payload);

  std::vector<std::byte> proposal_;
  DeviceDescription found_;
  Step step_ = Step::version;
  std::uint32_t index_ = 0;  // of the region or interrupt that is asked about
};

}  // namespace orrery::bridge
