#include "systemc_models/rnic/verbs/wire.h"

#include <utility>

#include "fabric/wire_codec.h"

namespace orrery::rnic {

namespace {
constexpr std::uint64_t loop_event = 0;
constexpr std::uint64_t arrival_event = 1;
}  // namespace

void Wire::ready(Sendable& sendable) {
  if (!sendable.queued_) {
    sendable.queued_ = true;
    sendable.next_ = nullptr;
    (last_ != nullptr ? last_->next_ : first_) = &sendable;
    last_ = &sendable;
  }
  pump();
}

void Wire::pump() {
  if (pumping_) {
    return;
  }
  pumping_ = true;
  while (first_ != nullptr) {
    if (core_.port != nullptr && core_.port->free_at() > core_.now()) {
      core_.port->notify_when_free();
      break;
    }
    Sendable& sendable = *first_;
    first_ = sendable.next_;
    if (first_ == nullptr) {
      last_ = nullptr;
    }
    sendable.queued_ = false;
    if (sendable.transmit_next() && !sendable.queued_) {
      sendable.queued_ = true;
      sendable.next_ = nullptr;
      (last_ != nullptr ? last_->next_ : first_) = &sendable;
      last_ = &sendable;
    }
  }
  pumping_ = false;
}

fabric::Packet Wire::packet_of(fabric::ContentHandle content, std::uint16_t entropy) const {
  fabric::Packet packet = fabric::packet_of(*core_.packets, content);
  packet.entropy = entropy;
  packet.created = core_.now();
  return packet;
}

void Wire::send(std::uint32_t function, fabric::ContentHandle content, std::uint16_t entropy, bool local) {
  if (core_.functions.at(function).port_down != 0) {
    core_.packets->release(content);
    return;
  }
  const fabric::Packet packet = packet_of(content, entropy);
  FrameCounters& counters = core_.frame_counters[function];
  count_frame(packet.destination_mac.is_multicast() ? counters.roce_sent_multicast : counters.roce_sent_unicast,
              packet.wire_bytes - fabric::fcs_bytes);
  if (local) {
    loop(packet);
  } else {
    send(function, packet);
  }
}

void Wire::send_copy(std::uint32_t function, fabric::ContentHandle content, std::uint16_t entropy) {
  if (core_.functions.at(function).port_down != 0) {
    core_.packets->release(content);
    return;
  }
  loop(packet_of(content, entropy));
}

void Wire::send(std::uint32_t function, const fabric::Packet& packet) {
  if (core_.port == nullptr || core_.functions.at(function).port_down != 0) {
    core_.packets->release(packet.content);
    return;
  }
  core_.port->send(packet);
}

void Wire::loop(const fabric::Packet& packet) {
  looped_.push_back(packet);
  if (!loop_scheduled_) {
    loop_scheduled_ = true;
    core_.events().schedule(core_.now(), *this, loop_event);
  }
}

void Wire::on_event(std::uint64_t argument) {
  if (argument == arrival_event) {
    const fabric::Packet packet = arrived_.front();
    arrived_.pop();
    receive(packet);
    return;
  }
  loop_scheduled_ = false;
  std::swap(looped_, delivering_);
  for (const fabric::Packet& packet : delivering_) {
    on_packet(packet);
  }
  delivering_.clear();
}

void Wire::on_packet(const fabric::Packet& packet) {
  const Picoseconds pipeline = core_.settings.timing.pipeline;
  if (pipeline == Picoseconds{}) {
    receive(packet);
    return;
  }
  arrived_.push(packet);
  core_.events().schedule(core_.now() + pipeline, *this, arrival_event);
}

void Wire::receive(const fabric::Packet& packet) {
  if (packet.content.empty()) {
    ++dropped_;
    return;
  }
  const fabric::PacketContent& content = core_.packets->at(packet.content);
  if ((packet.flags & (fabric::packet_flag::bad_fcs | fabric::packet_flag::bad_icrc)) != 0) {
    ++dropped_;
  } else if (content.is_roce) {
    listener_.on_roce(packet, content);
  } else if (frames_ != nullptr) {
    frames_->on_frame(packet);
    return;
  }
  core_.packets->release(packet.content);
}

}  // namespace orrery::rnic
