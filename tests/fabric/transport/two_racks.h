// Hosts below two switches that several uplinks join, with connections between hosts: the transport's tests at the
// scale of a small fabric. Packets carry no payload.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "fabric/link.h"
#include "fabric/tor_switch.h"
#include "fabric/transport/reliable_receiver.h"
#include "fabric/transport/reliable_sender.h"

namespace orrery::fabric::testing {

inline constexpr std::uint32_t full_packet = 4162;

struct Fabric {
  struct Settings {
    unsigned hosts = 8;  // below each switch
    unsigned uplinks = 8;
    LinkSettings link = {};
    TorSettings tor = {};
  };
  explicit Fabric(const Settings& with) : settings(with), timers(events) {
    for (unsigned side = 0; side < 2; ++side) {
      TorSettings tor = with.tor;
      tor.ports = with.hosts + with.uplinks;
      tor.stream = side;
      tors.push_back(std::make_unique<TorSwitch>(events, pool, tor));
      for (unsigned i = 0; i < with.hosts; ++i) {
        add_link(with.link);
        tors[side]->attach(i, links.back()->end(1));
        const unsigned port[] = {i};
        tors[side]->set_route(side * with.hosts + i, port);
      }
    }
    std::vector<unsigned> uplinks;
    for (unsigned i = 0; i < with.uplinks; ++i) {
      uplinks.push_back(with.hosts + i);
      add_link(with.link);
      tors[0]->attach(with.hosts + i, links.back()->end(0));
      tors[1]->attach(with.hosts + i, links.back()->end(1));
    }
    tors[0]->set_default_route(uplinks);
    tors[1]->set_default_route(uplinks);
  }
  [[nodiscard]] Link& host_link(unsigned host) { return *links[host]; }
  [[nodiscard]] Link& uplink(unsigned i) { return *links[2 * settings.hosts + i]; }

  Settings settings;
  EventQueue events;
  PacketPool pool;
  TimerPool timers;
  std::vector<std::unique_ptr<TorSwitch>> tors;
  std::vector<std::unique_ptr<Link>> links;  // of hosts, then uplinks

 private:
  void add_link(LinkSettings with) {
    with.stream = links.size();
    links.push_back(std::make_unique<Link>(events, pool, with));
  }
};

// A connection's two ends; it sends `total` packets and notes when the last has been acknowledged.
class Flow final : private SenderHost, private ReceiverHost {
 public:
  Flow(Fabric& its_fabric, std::uint32_t its_number, unsigned source, unsigned destination, const SenderSettings& with,
       std::uint64_t packets)
      : fabric(its_fabric),
        number(its_number),
        from(source),
        to(destination),
        total(packets),
        sender(its_fabric.timers, *this, with),
        receiver(its_fabric.timers, *this, {}) {}
  void start() { pump(); }
  void on_packet(const Packet& packet) {
    if (packet.kind == PacketClass::roce_ack) {
      const RoceHeaders headers = fabric.pool.at(packet.content).roce;
      fabric.pool.release(packet.content);
      sender.on_ack(from_wire(Psn::of(headers.bth.psn), headers.ack));
      return;
    }
    const bool last = (packet.flags & packet_flag::last) != 0;
    if (receiver.on_data({Psn::of(packet.psn), packet.entropy, packet.ecn == Ecn::ce, last, last, 1}) ==
        Arrival::fresh) {
      arrived_at = fabric.events.now();
    }
    receiver.flush();
  }
  [[nodiscard]] bool done() const { return sent == total && sender.idle(); }

  Fabric& fabric;
  std::uint32_t number;
  unsigned from;
  unsigned to;
  std::uint64_t total;
  std::uint64_t sent = 0;
  Picoseconds arrived_at;  // the last fresh packet
  ReliableSender sender;
  ReliableReceiver receiver;

 private:
  void pump() {
    while (sent < total && sender.may_send(full_packet)) {
      const ReliableSender::Ticket ticket = sender.send(full_packet);
      ++sent;
      transmit(ticket.psn, ticket.entropy, 1, 1);
    }
  }
  void transmit(Psn psn, std::uint16_t entropy, unsigned /*attempt*/, std::uint32_t /*packets*/) override {
    Packet packet;
    packet.source = from;
    packet.destination = to;
    packet.flow = number;
    packet.psn = psn.value;
    packet.entropy = entropy;
    packet.ecn = Ecn::ect0;
    packet.kind = PacketClass::roce_data;
    packet.wire_bytes = full_packet;
    packet.flags = psn.value + 1 == total ? packet_flag::last : std::uint8_t{0};
    fabric.host_link(from).end(0).send(packet);
  }
  void acknowledged(Psn /*upto*/) override {}
  void window_opened() override { pump(); }
  void failed(SendFailure /*reason*/) override { ADD_FAILURE() << "flow " << number << " failed"; }
  void send_ack(const AckInfo& info) override {
    RoceHeaders headers;
    headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::acknowledge);
    headers.bth.psn = info.cumulative.value;
    headers.bth.extended = true;
    headers.ack = to_wire(info);
    Packet packet = packet_of(fabric.pool, fabric.pool.make_roce(headers, {}));
    packet.source = to;
    packet.destination = from;
    packet.flow = number;
    packet.entropy = info.entropy;
    fabric.host_link(to).end(0).send(packet);
  }
};

// Hands what arrives at a host to the flow that it belongs to.
class Hosts {
 public:
  explicit Hosts(Fabric& fabric) {
    for (unsigned i = 0; i < 2 * fabric.settings.hosts; ++i) {
      hosts_.push_back(std::make_unique<Host>(*this));
      fabric.host_link(i).end(0).attach(*hosts_[i]);
    }
  }
  void add(std::unique_ptr<Flow> flow) { flows.push_back(std::move(flow)); }

  std::vector<std::unique_ptr<Flow>> flows;  // by number

 private:
  struct Host final : PortListener {
    explicit Host(Hosts& its_owner) : owner(its_owner) {}
    void on_packet(const Packet& packet) override { owner.flows[packet.flow]->on_packet(packet); }
    Hosts& owner;
  };
  std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace orrery::fabric::testing
