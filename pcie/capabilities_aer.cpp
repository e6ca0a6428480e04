#include "pcie/capabilities.h"
#include "pcie/capabilities_layout.h"

namespace orrery::pcie {

namespace {

using namespace capability_layout;

constexpr std::uint32_t bit(UncorrectableError error) {
  return 1U << static_cast<unsigned>(error);
}
constexpr std::uint32_t bit(CorrectableError error) {
  return 1U << static_cast<unsigned>(error);
}

// Errors every function can report, and the severities at reset (§7.8.4.4).
constexpr std::uint32_t uncorrectable_always =
    bit(UncorrectableError::data_link_protocol) | bit(UncorrectableError::poisoned_tlp) |
    bit(UncorrectableError::flow_control_protocol) | bit(UncorrectableError::completion_timeout) |
    bit(UncorrectableError::completer_abort) | bit(UncorrectableError::unexpected_completion) |
    bit(UncorrectableError::receiver_overflow) | bit(UncorrectableError::malformed_tlp) |
    bit(UncorrectableError::unsupported_request);
constexpr std::uint32_t fatal_by_default =
    bit(UncorrectableError::data_link_protocol) | bit(UncorrectableError::surprise_down) |
    bit(UncorrectableError::flow_control_protocol) | bit(UncorrectableError::receiver_overflow) |
    bit(UncorrectableError::malformed_tlp);
constexpr std::uint32_t correctable_all = bit(CorrectableError::receiver) | bit(CorrectableError::bad_tlp) |
                                          bit(CorrectableError::bad_dllp) | bit(CorrectableError::replay_rollover) |
                                          bit(CorrectableError::replay_timeout) |
                                          bit(CorrectableError::advisory_non_fatal);
constexpr std::uint32_t first_error_pointer = 0x1f;

// Where the registers of a function are; 0: absent.
struct Places {
  std::uint32_t express = 0;
  std::uint32_t aer = 0;
  std::uint16_t device_control = 0;
  bool serr = false;
};
Places places_of(const ConfigSpace& space) {
  Places places;
  places.express = space.capability(capability_id::pci_express);
  places.aer = space.extended_capability(extended_capability_id::aer);
  places.device_control = places.express == 0 ? std::uint16_t{0} : space.read16(places.express + device_control_offset);
  places.serr = (space.command() & command_bit::serr_enable) != 0;
  return places;
}

void set_device_status(ConfigSpace& space, const Places& places, std::uint32_t bits) {
  if (places.express != 0) {
    space.set_bits(places.express + device_status, bits);
  }
}

// Sets the status bit; true unless the error is masked. The first unmasked error keeps pointer and header log until
// software clears its status bit.
bool log_uncorrectable(ConfigSpace& space, const Places& places, UncorrectableError error,
                       const std::array<std::uint32_t, 4>* header) {
  if (places.aer == 0) {
    return true;
  }
  const bool masked = (space.read32(places.aer + aer_uncorrectable_mask) & bit(error)) != 0;
  const std::uint32_t pointer = space.read32(places.aer + aer_control) & first_error_pointer;
  const bool log_in_use = ((space.read32(places.aer + aer_uncorrectable_status) >> pointer) & 1U) != 0;
  space.set_bits(places.aer + aer_uncorrectable_status, bit(error));
  if (!masked && !log_in_use) {
    space.update_bits(places.aer + aer_control, first_error_pointer, static_cast<std::uint32_t>(error));
    for (unsigned i = 0; i < 4; ++i) {
      space.update_bits(places.aer + aer_header_log + 4 * i, 0xffff'ffff, header == nullptr ? 0 : (*header)[i]);
    }
  }
  return !masked;
}

}  // namespace

std::uint16_t CapabilityBuilder::add(const AerCapability& c) {
  // Version 2, TLP prefix log included.
  const std::uint16_t at = extended(extended_capability_id::aer, "AER", 2, 0x48);
  const std::uint32_t supported = uncorrectable_always | (c.acs ? bit(UncorrectableError::acs_violation) : 0U);
  space_.define(at + aer_uncorrectable_status, 4, 0, {.clear_by_one = supported, .sticky = supported});
  space_.define(at + aer_uncorrectable_mask, 4, 0, {.writable = supported, .sticky = supported});
  space_.define(at + aer_uncorrectable_severity, 4, fatal_by_default, {.writable = supported, .sticky = supported});
  space_.define(at + aer_correctable_status, 4, 0, {.clear_by_one = correctable_all, .sticky = correctable_all});
  space_.define(at + aer_correctable_mask, 4, bit(CorrectableError::advisory_non_fatal),
                {.writable = correctable_all, .sticky = correctable_all});
  space_.define(at + aer_control, 4, 0, {.sticky = first_error_pointer});
  for (unsigned i = 0; i < 4; ++i) {
    space_.define(at + aer_header_log + 4 * i, 4, 0, {.sticky = 0xffff'ffff});
  }
  if (c.root_port) {
    space_.define(at + aer_root_command, 4, 0, {.writable = 0x7});
    space_.define(at + aer_root_status, 4, 0, {.clear_by_one = 0x7f, .sticky = 0x7f});
    space_.define(at + aer_error_source, 4, 0, {.sticky = 0xffff'ffff});
    space_.watch(at + aer_root_command, ConfigWatch::aer);
    space_.watch(at + aer_root_status, ConfigWatch::aer);
  }
  for (const std::uint32_t offset : {aer_uncorrectable_status, aer_uncorrectable_mask, aer_uncorrectable_severity,
                                     aer_correctable_status, aer_correctable_mask}) {
    space_.watch(at + offset, ConfigWatch::aer);
  }
  return at;
}

ErrorMessage report_error(ConfigSpace& space, UncorrectableError error, const std::array<std::uint32_t, 4>* header,
                          bool advisory) {
  const Places places = places_of(space);
  const bool unsupported = error == UncorrectableError::unsupported_request;
  const std::uint32_t severity =
      places.aer == 0 ? fatal_by_default : space.read32(places.aer + aer_uncorrectable_severity);
  const bool fatal = (severity & bit(error)) != 0;
  const std::uint32_t unsupported_status = unsupported ? devsta_unsupported_request : 0U;
  // Unsupported requests have an enable of their own, besides that of their severity.
  const bool allowed = !unsupported || (places.device_control & devctl_unsupported_request_reporting) != 0;

  if (advisory && !fatal) {
    set_device_status(space, places, devsta_correctable | unsupported_status);
    if (places.aer != 0) {
      space.set_bits(places.aer + aer_correctable_status, bit(CorrectableError::advisory_non_fatal));
      if ((space.read32(places.aer + aer_correctable_mask) & bit(CorrectableError::advisory_non_fatal)) != 0) {
        return ErrorMessage::none;
      }
    }
    const bool unmasked = log_uncorrectable(space, places, error, header);
    const bool enabled = (places.device_control & devctl_correctable_reporting) != 0 && allowed;
    return unmasked && enabled ? ErrorMessage::correctable : ErrorMessage::none;
  }

  set_device_status(space, places, (fatal ? devsta_fatal : devsta_non_fatal) | unsupported_status);
  if (!log_uncorrectable(space, places, error, header)) {
    return ErrorMessage::none;
  }
  const std::uint16_t enable = fatal ? devctl_fatal_reporting : devctl_non_fatal_reporting;
  if (!places.serr && ((places.device_control & enable) == 0 || !allowed)) {
    return ErrorMessage::none;
  }
  if (places.serr) {
    space.set_bits(config_register::status, status_bit::signalled_system_error);
  }
  return fatal ? ErrorMessage::fatal : ErrorMessage::non_fatal;
}

ErrorMessage report_error(ConfigSpace& space, CorrectableError error) {
  const Places places = places_of(space);
  set_device_status(space, places, devsta_correctable);
  if (places.aer != 0) {
    space.set_bits(places.aer + aer_correctable_status, bit(error));
    if ((space.read32(places.aer + aer_correctable_mask) & bit(error)) != 0) {
      return ErrorMessage::none;
    }
  }
  return (places.device_control & devctl_correctable_reporting) != 0 ? ErrorMessage::correctable : ErrorMessage::none;
}

}  // namespace orrery::pcie
