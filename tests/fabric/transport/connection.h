// One connection over two links, as the transport's tests use it: data packets without payload, acknowledges through
// their wire form. Counts what is delivered, packet by packet.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/link.h"
#include "fabric/packet_pool.h"
#include "fabric/transport/reliable_receiver.h"
#include "fabric/transport/reliable_sender.h"

namespace orrery::fabric::testing {

struct ConnectionSettings {
  LinkSettings link = {};
  SenderSettings sender = {};
  ReceiverSettings receiver = {};
  std::uint32_t packet_bytes = 4162;
  std::uint64_t messages_of = 16;  // packets to a message; its last asks for an acknowledge
};

class Connection final : private SenderHost, private ReceiverHost {
 public:
  struct Transmission {
    std::uint64_t number = 0;
    std::uint16_t entropy = 0;
    unsigned attempt = 1;
    Picoseconds at;
  };

  explicit Connection(const ConnectionSettings& with)
      : timers(events),
        link(events, pool, with.link),
        settings(with),
        sender(timers, *this, settings.sender),
        receiver(timers, *this, settings.receiver),
        near_(*this, true),
        far_(*this, false) {
    link.end(0).attach(near_);
    link.end(1).attach(far_);
  }

  // Sends `count` packets, as the windows allow.
  void start(std::uint64_t count) {
    total_ += count;
    pump();
  }
  // Runs until nothing is left to happen, or the limit. True if everything was delivered and acknowledged.
  bool run(Picoseconds limit = {10'000'000'000'000}) {
    events.run_until(limit);
    return delivered.size() == total_ && sender.idle() && !failure.has_value() &&
           std::all_of(delivered.begin(), delivered.end(), [](unsigned times) { return times == 1; });
  }

  EventQueue events;
  PacketPool pool;
  TimerPool timers;
  Link link;
  ConnectionSettings settings;
  ReliableSender sender;
  ReliableReceiver receiver;
  std::vector<unsigned> delivered;  // times, by packet number
  std::vector<Transmission> transmissions;
  std::vector<AckInfo> acks;  // as sent
  std::optional<SendFailure> failure;
  Picoseconds failed_at;
  std::uint64_t acknowledged_packets = 0;
  // Hooks: drop a transmission; refuse a fresh packet with an RNR NAK of this delay.
  std::function<bool(const Transmission&)> swallow = [](const Transmission&) { return false; };
  std::function<std::optional<Picoseconds>(std::uint64_t number)> refuse = [](std::uint64_t) { return std::nullopt; };

  // The packet's number since the start of the connection; right as long as it lies near the sender's window.
  [[nodiscard]] std::uint64_t number_of(Psn psn) const {
    const auto base = static_cast<std::int64_t>(acknowledged_packets);
    return static_cast<std::uint64_t>(
        base +
        distance(settings.sender.initial_psn + static_cast<std::uint32_t>(acknowledged_packets & 0xff'ffffU), psn));
  }

 private:
  struct End final : PortListener {
    End(Connection& its_owner, bool is_sender) : owner(its_owner), sends(is_sender) {}
    void on_packet(const Packet& packet) override { sends ? owner.answer(packet) : owner.data(packet); }
    Connection& owner;
    bool sends;
  };

  void pump() {
    while (sent_ < total_ && sender.may_send(settings.packet_bytes)) {
      const ReliableSender::Ticket ticket = sender.send(settings.packet_bytes);
      put(ticket.psn, ticket.entropy, sent_++, 1);
    }
  }
  void put(Psn psn, std::uint16_t entropy, std::uint64_t number, unsigned attempt) {
    const Transmission transmission{number, entropy, attempt, events.now()};
    transmissions.push_back(transmission);
    if (swallow(transmission)) {
      return;
    }
    Packet packet;
    packet.psn = psn.value;
    packet.entropy = entropy;
    packet.ecn = Ecn::ect0;
    packet.kind = PacketClass::roce_data;
    packet.wire_bytes = settings.packet_bytes;
    const bool last = (number + 1) % settings.messages_of == 0 || number + 1 == total_;
    packet.flags = last ? packet_flag::last : std::uint8_t{0};
    link.end(0).send(packet);
  }

  void transmit(Psn psn, std::uint16_t entropy, unsigned attempt, std::uint32_t packets) override {
    EXPECT_EQ(packets, 1U);
    put(psn, entropy, number_of(psn), attempt);
  }
  void acknowledged(Psn upto) override {
    const std::uint64_t before_this = acknowledged_packets;
    acknowledged_packets = number_of(upto) + 1;
    EXPECT_GT(acknowledged_packets, before_this);
    EXPECT_LE(acknowledged_packets, sent_);
  }
  void window_opened() override { pump(); }
  void failed(SendFailure reason) override {
    EXPECT_FALSE(failure.has_value());
    failure = reason;
    failed_at = events.now();
  }

  void data(const Packet& packet) {
    if ((packet.flags & (packet_flag::bad_fcs | packet_flag::bad_icrc)) != 0) {
      return;
    }
    const DataArrival arrival{Psn::of(packet.psn),
                              packet.entropy,
                              packet.ecn == Ecn::ce,
                              (packet.flags & packet_flag::last) != 0,
                              (packet.flags & packet_flag::last) != 0,
                              1};
    const std::uint64_t number = number_of(arrival.psn);
    if (receiver.check(arrival.psn) == Arrival::fresh) {
      if (const std::optional<Picoseconds> delay = refuse(number)) {
        receiver.refuse();
        RoceHeaders nak;
        nak.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::acknowledge);
        nak.bth.psn = packet.psn;
        nak.aeth.syndrome = aeth::rnr_nak;
        nak.reth.address = delay->count;  // the test's own: any delay, not only table 46's
        send_headers(nak);
        return;
      }
    }
    if (receiver.on_data(arrival) == Arrival::fresh) {
      if (delivered.size() <= number) {
        delivered.resize(number + 1);
      }
      ++delivered[number];
    }
    receiver.flush();
  }
  void send_ack(const AckInfo& info) override {
    acks.push_back(info);
    RoceHeaders headers;
    headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::acknowledge);
    headers.bth.psn = info.cumulative.value;
    headers.bth.extended = true;
    headers.aeth.syndrome = aeth::ack_no_credits;
    headers.ack = to_wire(info);
    send_headers(headers);
  }
  void send_headers(const RoceHeaders& headers) { link.end(1).send(packet_of(pool, pool.make_roce(headers, {}))); }

  void answer(const Packet& packet) {
    const RoceHeaders headers = pool.at(packet.content).roce;
    pool.release(packet.content);
    if ((packet.flags & (packet_flag::bad_fcs | packet_flag::bad_icrc)) != 0) {
      return;
    }
    if (aeth::is_rnr_nak(headers.aeth.syndrome)) {
      sender.on_rnr_nak(Psn::of(headers.bth.psn), {headers.reth.address});
    } else {
      sender.on_ack(from_wire(Psn::of(headers.bth.psn), headers.ack));
    }
  }

  std::uint64_t total_ = 0;
  std::uint64_t sent_ = 0;
  End near_;
  End far_;
};

}  // namespace orrery::fabric::testing
