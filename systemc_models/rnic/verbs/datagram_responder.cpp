#include "systemc_models/rnic/verbs/datagram_responder.h"

#include <algorithm>
#include <utility>

namespace orrery::rnic {
namespace {

// Q_Key of the general services interface (IBTA §10.2.5).
constexpr std::uint32_t gsi_qkey = 0x8001'0000;

void put16(std::byte* at, std::uint32_t value) {
  at[0] = static_cast<std::byte>(value >> 8);
  at[1] = static_cast<std::byte>(value);
}

// The 40 bytes as a driver gets them: RFC 791 for IPv4, RFC 8200 and IBTA §8.3 otherwise.
void write_header(const fabric::NetworkHeaders& n, fabric::Ecn ecn, std::uint32_t payload_bytes, std::byte* into) {
  std::fill_n(into, datagram_header_bytes, std::byte{0});
  const auto traffic_class = static_cast<std::uint8_t>((n.dscp << 2) | static_cast<std::uint8_t>(ecn));
  // BTH, DETH, ICRC and, in RoCE v2, UDP.
  const std::uint32_t inner = payload_bytes + 12 + 8 + 4;
  if (n.encapsulation == fabric::RoceEncapsulation::v2_ipv4) {
    std::byte* ip = into + 20;
    ip[0] = std::byte{0x45};
    ip[1] = std::byte{traffic_class};
    put16(ip + 2, inner + 8 + 20);
    put16(ip + 4, n.identification);
    put16(ip + 6, 0x4000);
    ip[8] = std::byte{n.hop_limit};
    ip[9] = std::byte{17};
    std::copy_n(reinterpret_cast<const std::byte*>(n.source.data()) + 12, 4, ip + 12);
    std::copy_n(reinterpret_cast<const std::byte*>(n.destination.data()) + 12, 4, ip + 16);
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < 20; i += 2) {
      sum += (std::to_integer<std::uint32_t>(ip[i]) << 8) | std::to_integer<std::uint32_t>(ip[i + 1]);
    }
    sum = (sum & 0xffffU) + (sum >> 16);
    sum = (sum & 0xffffU) + (sum >> 16);
    put16(ip + 10, ~sum & 0xffffU);
    return;
  }
  const bool v1 = n.encapsulation == fabric::RoceEncapsulation::v1;
  const std::uint32_t word = (6U << 28) | (std::uint32_t{traffic_class} << 20) | n.flow_label;
  put16(into, word >> 16);
  put16(into + 2, word & 0xffffU);
  put16(into + 4, v1 ? inner : inner + 8);
  into[6] = v1 ? std::byte{0x1b} : std::byte{17};
  into[7] = std::byte{n.hop_limit};
  std::copy_n(reinterpret_cast<const std::byte*>(n.source.data()), 16, into + 8);
  std::copy_n(reinterpret_cast<const std::byte*>(n.destination.data()), 16, into + 24);
}

NetworkHeader network_of(fabric::RoceEncapsulation encapsulation) {
  switch (encapsulation) {
    case fabric::RoceEncapsulation::v2_ipv4:
      return NetworkHeader::ipv4;
    case fabric::RoceEncapsulation::v2_ipv6:
      return NetworkHeader::ipv6;
    default:
      return NetworkHeader::grh;
  }
}

}  // namespace

void DatagramResponder::on_request(const fabric::Packet& packet, const fabric::PacketContent& content) {
  if (flushing()) {
    return;
  }
  VerbsCounters& counters = qp_.counters();
  const fabric::RoceHeaders& h = content.roce;
  const fabric::RoceOperation op = fabric::operation_of(h.bth.opcode);
  const bool immediate = op == fabric::RoceOperation::send_only_immediate;
  if ((op != fabric::RoceOperation::send_only && !immediate) || content.bytes().size() > qp_.context.mtu) {
    ++counters.datagrams_dropped;
    return;
  }
  const bool gsi = qp_.context.type == QpType::gsi;
  if (qp_.context.type != QpType::smi && h.deth.qkey != (gsi ? gsi_qkey : qp_.context.qkey)) {
    ++counters.qkey_violations;
    ++counters.datagrams_dropped;
    return;
  }
  ReceiveSource* from = source();
  Scatter* wqe = nullptr;
  const Take taken = from == nullptr ? Take::empty : from->take(*this, wqe);
  if (taken == Take::wait) {
    note_wait(qp_.context.srq);
  }
  if (taken == Take::wait && held_.size() < max_held) {
    core_.packets->add_reference(packet.content);
    held_.push_back(packet);
    return;
  }
  if (taken != Take::got) {
    ++qp_.queue_counters().out_of_buffer;
    ++counters.datagrams_dropped;
    return;
  }
  const auto payload = content.bytes();
  const auto bytes = datagram_header_bytes + static_cast<std::uint32_t>(payload.size());
  const fabric::ContentHandle staging = core_.packets->make();
  const std::span<std::byte> into = core_.packets->reserve(staging, bytes);
  write_header(h.network, packet.ecn, static_cast<std::uint32_t>(payload.size() + (4 - payload.size() % 4) % 4),
               into.data());
  std::copy(payload.begin(), payload.end(), into.begin() + datagram_header_bytes);
  const Placed placed = wqe->malformed ? Placed::denied : place(*wqe, from->pd(), 0, into, messages_.end());
  Message message;
  message.wqe = wqe;
  message.staging = staging;
  Completion& c = message.completion;
  c.kind = immediate ? CompletionKind::receive_immediate : CompletionKind::receive;
  c.solicited = h.bth.solicited;
  c.has_grh = true;
  c.network = network_of(h.network.encapsulation);
  c.service_level = static_cast<std::uint8_t>(h.network.vlan_tci >> 13);
  c.pkey = gsi ? h.bth.pkey : std::uint16_t{0};
  c.source_qp = h.deth.source_qp;
  c.immediate = immediate ? h.immediate : 0;
  c.byte_count = bytes;
  if (placed != Placed::started) {
    c.code = placed == Placed::too_long ? CompletionCode::local_length : CompletionCode::local_protection;
    c.vendor_code = 1;
    message.done = true;
  }
  messages_.push(message);
  counters.payload_bytes_received += payload.size();
  complete_messages();
}

void DatagramResponder::receive_ready() {
  std::vector<fabric::Packet> held = std::exchange(held_, {});
  for (const fabric::Packet& packet : held) {
    on_request(packet, core_.packets->at(packet.content));
    core_.packets->release(packet.content);
  }
}

void DatagramResponder::on_dma(std::uint64_t cookie, bool ok) {
  Message& message = messages_.at(static_cast<std::uint32_t>(cookie));
  message.done = true;
  if (!ok) {
    message.completion.code = CompletionCode::local_protection;
    message.completion.vendor_code = 1;
  }
  if (flushing()) {
    flush();
  } else {
    complete_messages();
  }
}

void DatagramResponder::complete_messages() {
  while (!messages_.empty() && messages_.front().done && !flushing()) {
    const Message message = messages_.front();
    messages_.pop();
    core_.packets->release(message.staging);
    complete(*message.wqe, message.completion, none);
    if (message.completion.code != CompletionCode::success) {
      qp_.fail(QpErrorCause::local);
    }
  }
}

void DatagramResponder::stop() {
  for (const fabric::Packet& packet : held_) {
    core_.packets->release(packet.content);
  }
  held_.clear();
}

void DatagramResponder::release_receives(bool completes) {
  while (!messages_.empty()) {
    const Message message = messages_.front();
    messages_.pop();
    core_.packets->release(message.staging);
    if (completes) {
      flush_one(*message.wqe, none);
    } else {
      qp_.blocks.scatters.give_back(*message.wqe);
    }
  }
}

}  // namespace orrery::rnic
