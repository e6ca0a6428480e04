#include "fabric/roce_headers.h"

namespace orrery::fabric {

namespace {

constexpr OpcodeLayout make_layout(std::uint8_t opcode) {
  OpcodeLayout layout;
  if (opcode == opcode_cnp) {
    layout.valid = true;
    layout.answer = true;
    layout.payload = true;  // 16 reserved bytes (A17.9.3)
    return layout;
  }
  const RoceTransport transport = transport_of(opcode);
  const RoceOperation operation = operation_of(opcode);
  const unsigned number = opcode & 31U;
  const bool rc_like = transport == RoceTransport::rc || transport == RoceTransport::xrc;
  switch (transport) {
    case RoceTransport::rc:
    case RoceTransport::xrc:
      layout.valid = number <= 20 || number == 22 || number == 23;
      break;
    case RoceTransport::uc:
      layout.valid = number <= 11;
      break;
    case RoceTransport::ud:
      layout.valid = operation == RoceOperation::send_only || operation == RoceOperation::send_only_immediate;
      break;
    default:
      break;
  }
  if (!layout.valid) {
    return layout;
  }
  const auto is = [operation](auto... operations) { return ((operation == operations) || ...); };
  using Op = RoceOperation;
  const bool response = number >= 13 && number <= 18;
  const bool send = number <= 5 || number >= 22;
  const bool write = number >= 6 && number <= 11;
  layout.request = !response;
  layout.answer = is(Op::acknowledge, Op::atomic_acknowledge);
  layout.deth = transport == RoceTransport::ud;
  layout.xrceth = transport == RoceTransport::xrc && layout.request;
  layout.reth = is(Op::write_first, Op::write_only, Op::write_only_immediate, Op::read_request);
  layout.atomic = is(Op::compare_swap, Op::fetch_add);
  layout.aeth = is(Op::read_response_first, Op::read_response_last, Op::read_response_only, Op::acknowledge,
                   Op::atomic_acknowledge);
  layout.atomic_ack = is(Op::atomic_acknowledge);
  layout.immediate =
      is(Op::send_last_immediate, Op::send_only_immediate, Op::write_last_immediate, Op::write_only_immediate);
  layout.ieth = is(Op::send_last_invalidate, Op::send_only_invalidate);
  layout.payload = send || write || (number >= 13 && number <= 16);
  layout.starts_message = is(Op::send_first, Op::send_only, Op::send_only_immediate, Op::send_only_invalidate,
                             Op::write_first, Op::write_only, Op::write_only_immediate, Op::read_request,
                             Op::read_response_first, Op::read_response_only, Op::compare_swap, Op::fetch_add);
  layout.ends_message = layout.payload ? !is(Op::send_first, Op::send_middle, Op::write_first, Op::write_middle,
                                             Op::read_response_first, Op::read_response_middle)
                                       : layout.request;
  layout.consumes_receive = layout.ends_message && (send || (write && layout.immediate));
  if (rc_like && layout.request) {
    layout.extension = write && !layout.reth ? RoceExtension::place_address : RoceExtension::place;
  } else if (rc_like && operation == Op::acknowledge) {
    layout.extension = RoceExtension::acknowledge;
  }
  layout.header_bytes = static_cast<std::uint8_t>(
      (layout.deth ? 8 : 0) + (layout.xrceth ? 4 : 0) + (layout.reth ? 16 : 0) + (layout.atomic ? 28 : 0) +
      (layout.aeth ? 4 : 0) + (layout.atomic_ack ? 8 : 0) + (layout.immediate ? 4 : 0) + (layout.ieth ? 4 : 0));
  return layout;
}

constexpr std::array<OpcodeLayout, 256> make_layouts() {
  std::array<OpcodeLayout, 256> layouts{};
  for (unsigned i = 0; i < 256; ++i) {
    layouts[i] = make_layout(static_cast<std::uint8_t>(i));
  }
  return layouts;
}
constexpr std::array<OpcodeLayout, 256> layouts = make_layouts();

// Names of the operations, per transport.
#define ORRERY_OPCODE_NAMES(transport)                                                                                \
  {                                                                                                                   \
    transport " SEND First", transport " SEND Middle", transport " SEND Last", transport " SEND Last with Immediate", \
        transport " SEND Only", transport " SEND Only with Immediate", transport " RDMA WRITE First",                 \
        transport " RDMA WRITE Middle", transport " RDMA WRITE Last", transport " RDMA WRITE Last with Immediate",    \
        transport " RDMA WRITE Only", transport " RDMA WRITE Only with Immediate", transport " RDMA READ Request",    \
        transport " RDMA READ response First", transport " RDMA READ response Middle",                                \
        transport " RDMA READ response Last", transport " RDMA READ response Only", transport " Acknowledge",         \
        transport " ATOMIC Acknowledge", transport " CmpSwap", transport " FetchAdd", transport " reserved",          \
        transport " SEND Last with Invalidate", transport " SEND Only with Invalidate"                                \
  }
constexpr const char* rc_names[] = ORRERY_OPCODE_NAMES("RC");
constexpr const char* uc_names[] = ORRERY_OPCODE_NAMES("UC");
constexpr const char* ud_names[] = ORRERY_OPCODE_NAMES("UD");
constexpr const char* xrc_names[] = ORRERY_OPCODE_NAMES("XRC");
#undef ORRERY_OPCODE_NAMES

}  // namespace

const OpcodeLayout& layout_of(std::uint8_t opcode) {
  return layouts[opcode];
}

const char* opcode_name(std::uint8_t opcode) {
  if (!layout_of(opcode).valid) {
    return "unknown opcode";
  }
  const unsigned number = opcode & 31U;
  switch (transport_of(opcode)) {
    case RoceTransport::rc:
      return rc_names[number];
    case RoceTransport::uc:
      return uc_names[number];
    case RoceTransport::ud:
      return ud_names[number];
    case RoceTransport::xrc:
      return xrc_names[number];
    default:
      return "CNP";
  }
}

Picoseconds rnr_delay(std::uint8_t timer_code) {
  // Table 46, in units of 10 µs.
  constexpr std::uint32_t tens_of_microseconds[32] = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return Picoseconds{10'000'000} * tens_of_microseconds[timer_code & 31U];
}

}  // namespace orrery::fabric
