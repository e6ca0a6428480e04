// How fast the fabric is: packets over links and switches, the transport, the codec.
//
// "Hops": hosts below one switch each send at line rate to all others in turn; items_per_second counts links passed.
// "Transport": connections over a switch with ECN and 128-path spraying; items_per_second counts 64-KiB messages,
// "packets/s" their data packets, "hops/s" links passed by data and acknowledges.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/link.h"
#include "fabric/tor_switch.h"
#include "fabric/transport/reliable_receiver.h"
#include "fabric/transport/reliable_sender.h"
#include "fabric/wire_codec.h"

namespace orrery::fabric {
namespace {

constexpr std::uint32_t packet_bytes = 4162;

// Hosts, their links, and the switch between them.
struct Rack {
  explicit Rack(unsigned hosts) : tor(events, pool, {.ports = hosts, .ecn = {.enabled = true}}) {
    for (unsigned i = 0; i < hosts; ++i) {
      // Lengths differ, so that events don't come in step: those are far cheaper.
      const Picoseconds propagation{500'000 + (i * 7'919U) % 100'000};
      links.push_back(std::make_unique<Link>(events, pool, LinkSettings{.propagation = propagation, .stream = i}));
      tor.attach(i, links[i]->end(1));
      const unsigned route[] = {i};
      tor.set_route(i, route);
    }
  }
  [[nodiscard]] std::uint64_t hops() const {
    std::uint64_t sum = 0;
    for (const auto& link : links) {
      sum += link->counters(0).delivered_packets + link->counters(1).delivered_packets;
    }
    return sum;
  }
  EventQueue events;
  PacketPool pool;
  TorSwitch tor;
  std::vector<std::unique_ptr<Link>> links;
};

class Blaster final : public PortListener {
 public:
  Blaster(Rack& rack, unsigned number, unsigned hosts)
      : port_(rack.links[number]->end(0)), number_(number), hosts_(hosts) {
    port_.attach(*this);
    port_.notify_when_free();
  }
  void on_packet(const Packet& packet) override {
    auto psn = packet.psn;  // of constants some versions make too much
    benchmark::DoNotOptimize(psn);
  }
  void on_transmit_ready() override {
    Packet packet;
    packet.source = number_;
    packet.destination = (number_ + ++sequence_) % hosts_;
    packet.wire_bytes = packet_bytes;
    packet.entropy = static_cast<std::uint16_t>(0xc000U | (sequence_ & 127U));
    packet.ecn = Ecn::ect0;
    packet.kind = PacketClass::roce_data;
    port_.send(packet);
    port_.notify_when_free();
  }

 private:
  Port& port_;
  std::uint32_t number_;
  unsigned hosts_;
  std::uint32_t sequence_ = 0;
};

void Hops(benchmark::State& state) {
  const auto hosts = static_cast<unsigned>(state.range(0));
  Rack rack(hosts);
  std::vector<std::unique_ptr<Blaster>> blasters;
  for (unsigned i = 0; i < hosts; ++i) {
    blasters.push_back(std::make_unique<Blaster>(rack, i, hosts));
  }
  rack.events.run_until({50'000'000});
  const std::uint64_t before = rack.hops();
  for (auto _ : state) {
    rack.events.run_until(rack.events.now() + Picoseconds{1'000'000});
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(rack.hops() - before));
}
BENCHMARK(Hops)->Arg(64)->Arg(1024)->Unit(benchmark::kMicrosecond);

// A host with one connection to its neighbour, as sender, and from the other neighbour, as receiver.
class Node final : public PortListener, private SenderHost, private ReceiverHost {
 public:
  static constexpr std::uint64_t packets_of_message = 16;

  Node(Rack& rack, TimerPool& timers, unsigned number, unsigned hosts, PathPolicy policy)
      : pool_(rack.pool),
        port_(rack.links[number]->end(0)),
        number_(number),
        next_((number + 1) % hosts),
        previous_((number + hosts - 1) % hosts),
        sender_(timers, *this, settings(number, policy)),
        receiver_(timers, *this, {}) {
    port_.attach(*this);
  }
  void start() { pump(); }
  void on_packet(const Packet& packet) override {
    if (packet.kind == PacketClass::roce_ack) {
      const RoceHeaders& headers = pool_.at(packet.content).roce;
      const AckInfo info = from_wire(Psn::of(headers.bth.psn), headers.ack);
      pool_.release(packet.content);
      sender_.on_ack(info);
      return;
    }
    const bool last = (packet.flags & packet_flag::last) != 0;
    receiver_.on_data({Psn::of(packet.psn), packet.entropy, packet.ecn == Ecn::ce, false, last, 1});
    receiver_.flush();
  }
  [[nodiscard]] std::uint64_t packets() const { return receiver_.counters().fresh; }

 private:
  static SenderSettings settings(unsigned number, PathPolicy policy) {
    SenderSettings settings;
    settings.paths = {.policy = policy, .paths = 128, .seed = 1, .stream = number};
    settings.congestion.base_rtt = {4'000'000};
    return settings;
  }
  void pump() {
    while (sender_.may_send(packet_bytes)) {
      const ReliableSender::Ticket ticket = sender_.send(packet_bytes);
      transmit(ticket.psn, ticket.entropy, 1, 1);
    }
  }
  void transmit(Psn psn, std::uint16_t entropy, unsigned /*attempt*/, std::uint32_t /*packets*/) override {
    Packet packet;
    packet.source = number_;
    packet.destination = next_;
    packet.psn = psn.value;
    packet.wire_bytes = packet_bytes;
    packet.entropy = entropy;
    packet.ecn = Ecn::ect0;
    packet.kind = PacketClass::roce_data;
    packet.flags = psn.value % packets_of_message == packets_of_message - 1 ? packet_flag::last : std::uint8_t{0};
    port_.send(packet);
  }
  void acknowledged(Psn /*upto*/) override {}
  void window_opened() override { pump(); }
  void failed(SendFailure /*reason*/) override {}
  void send_ack(const AckInfo& info) override {
    const ContentHandle handle = pool_.make();
    PacketContent& content = pool_.at(handle);
    content.is_roce = true;
    content.roce.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::acknowledge);
    content.roce.bth.psn = info.cumulative.value;
    content.roce.bth.extended = true;
    content.roce.ack = to_wire(info);
    Packet packet = packet_of(pool_, handle);
    packet.source = number_;
    packet.destination = previous_;
    packet.entropy = info.entropy;
    port_.send(packet);
  }

  PacketPool& pool_;
  Port& port_;
  std::uint32_t number_;
  std::uint32_t next_;
  std::uint32_t previous_;
  ReliableSender sender_;
  ReliableReceiver receiver_;
};

void Transport(benchmark::State& state, PathPolicy policy, double loss) {
  const auto hosts = static_cast<unsigned>(state.range(0));
  Rack rack(hosts);
  TimerPool timers(rack.events);
  std::vector<std::unique_ptr<Node>> nodes;
  for (unsigned i = 0; i < hosts; ++i) {
    nodes.push_back(std::make_unique<Node>(rack, timers, i, hosts, policy));
    rack.links[i]->set_impairments(0, {.loss = loss});
  }
  for (const auto& node : nodes) {
    node->start();
  }
  const auto packets = [&nodes] {
    std::uint64_t sum = 0;
    for (const auto& node : nodes) {
      sum += node->packets();
    }
    return sum;
  };
  rack.events.run_until({500'000'000});
  const std::uint64_t packets_before = packets();
  const std::uint64_t hops_before = rack.hops();
  const std::uint64_t events_before = rack.events.dispatched();
  for (auto _ : state) {
    rack.events.run_until(rack.events.now() + Picoseconds{1'000'000});
  }
  const std::uint64_t done = packets() - packets_before;
  state.SetItemsProcessed(static_cast<std::int64_t>(done / Node::packets_of_message));
  state.counters["packets/s"] = benchmark::Counter(static_cast<double>(done), benchmark::Counter::kIsRate);
  state.counters["hops/s"] =
      benchmark::Counter(static_cast<double>(rack.hops() - hops_before), benchmark::Counter::kIsRate);
  state.counters["events/hop"] =
      static_cast<double>(rack.events.dispatched() - events_before) / static_cast<double>(rack.hops() - hops_before);
}
BENCHMARK_CAPTURE(Transport, obs, PathPolicy::obs, 0.0)->Arg(64)->Arg(1024)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Transport, obs_1_percent_loss, PathPolicy::obs, 0.01)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Transport, single, PathPolicy::single, 0.0)->Arg(64)->Unit(benchmark::kMicrosecond);

RoceHeaders write_middle() {
  RoceHeaders headers;
  headers.bth.opcode = opcode_of(RoceTransport::rc, RoceOperation::write_middle);
  headers.bth.extended = true;
  return headers;
}

void Encode(benchmark::State& state) {
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  std::vector<std::byte> frame(max_frame_bytes);
  const RoceHeaders headers = write_middle();
  for (auto _ : state) {
    std::size_t size = encode_frame(headers, payload, frame);
    benchmark::DoNotOptimize(size);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Encode)->Arg(256)->Arg(4096);

void Decode(benchmark::State& state) {
  const std::vector<std::byte> payload(static_cast<std::size_t>(state.range(0)), std::byte{0x5a});
  std::vector<std::byte> frame(max_frame_bytes);
  frame.resize(encode_frame(write_middle(), payload, frame));
  DecodedFrame decoded;
  for (auto _ : state) {
    DecodeStatus status = decode_frame(frame, decoded);
    benchmark::DoNotOptimize(status);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Decode)->Arg(256)->Arg(4096);

}  // namespace
}  // namespace orrery::fabric
