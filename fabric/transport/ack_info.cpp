#include "fabric/transport/ack_info.h"

#include <algorithm>

#include "fabric/roce_headers.h"

namespace orrery::fabric {

namespace {
constexpr std::uint64_t delay_unit = 16'000;  // picoseconds
}  // namespace

AckExtension to_wire(const AckInfo& info) {
  AckExtension extension;
  extension.trigger_psn = info.trigger.value;
  extension.sack_base = info.sack_base.value;
  extension.sack_bitmap = info.sack_bitmap;
  extension.entropy = info.entropy;
  extension.ecn_echo = info.ecn_echo;
  extension.ce_count = info.ce_count;
  extension.delay = static_cast<std::uint16_t>(std::min<std::uint64_t>(info.delay.count / delay_unit, 0xffff));
  return extension;
}

AckInfo from_wire(Psn cumulative, const AckExtension& extension) {
  AckInfo info;
  info.cumulative = cumulative;
  info.trigger = Psn::of(extension.trigger_psn);
  info.sack_base = Psn::of(extension.sack_base);
  info.sack_bitmap = extension.sack_bitmap;
  info.entropy = extension.entropy;
  info.ecn_echo = extension.ecn_echo;
  info.ce_count = extension.ce_count;
  info.delay = {extension.delay * delay_unit};
  return info;
}

}  // namespace orrery::fabric
