#include "systemc_models/server/network.h"

#include <algorithm>

#include <fmt/format.h>

namespace orrery::models {

namespace {

constexpr std::uint64_t fastest_bits_per_second = 100'000'000'000'000;  // the most that a Link takes

fabric::LinkSettings link_settings(const NetworkConfig& config, std::uint64_t seed, bool timed) {
  fabric::LinkSettings settings;
  settings.bits_per_second = timed ? config.port_gbit_per_s * 1'000'000'000 : fastest_bits_per_second;
  settings.propagation = timed ? config.propagation : Picoseconds{};
  settings.impairments.loss = config.loss;
  settings.impairments.corruption = config.corruption;
  settings.impairments.duplication = config.duplication;
  settings.impairments.reordering = config.reordering;
  settings.impairments.reorder_delay = config.reorder_delay;
  settings.seed = seed;
  return settings;
}

// Of each port of an RNIC. A choice: a connection that sprays at random over two ports gets 0.78 of both with 16 KiB,
// 0.95 with 64 and 0.98 with 256 (`orrery repro fig13`, 8 MiB).
constexpr std::uint64_t transmit_fifo_bytes = std::uint64_t{256} << 10;

fabric::TorSettings tor_settings(const NetworkConfig& config, unsigned ports, std::uint64_t seed, bool timed) {
  fabric::TorSettings settings;
  settings.ports = std::max(ports, 1U);
  settings.latency = timed ? config.switch_latency : Picoseconds{};
  settings.port_limit_bytes = config.port_limit_kib << 10;
  settings.shared_buffer_bytes = config.buffer_kib << 10;
  // Without time there are no queues worth marking.
  settings.ecn.enabled = timed && config.ecn;
  settings.ecn.kmin_bytes = config.ecn_kmin_kib << 10;
  settings.ecn.kmax_bytes = config.ecn_kmax_kib << 10;
  settings.ecn.pmax = config.ecn_pmax;
  settings.seed = seed;
  return settings;
}

}  // namespace

// The ports of an RNIC as one. A packet's entropy names the plane, and each plane has a transmit FIFO of its own, so
// that both transmit at once though packets of one connection come at random.
class Network::BondedPort final : public fabric::Port, private fabric::PortListener, private EventHandler {
 public:
  BondedPort(EventQueue& events, Picoseconds fifo) : events_(events), fifo_(fifo) {}
  // `port`: the link's end 0, or what taps it.
  void add(fabric::Link& link, fabric::Port& port) {
    paths_.push_back({&link, &port});
    port.attach(*this);
  }

  Picoseconds send_after(const fabric::Packet& packet, Picoseconds delay) override {
    return choose(packet).send_after(packet, delay);
  }
  // When every FIFO has room; a single port needs none.
  [[nodiscard]] Picoseconds free_at() const override {
    Picoseconds latest;
    for (const Path& path : paths_) {
      latest = max(latest, path.port->free_at());
    }
    return paths_.size() == 1 ? latest : max(latest, fifo_) - fifo_;
  }
  void notify_when_free() override {
    if (!notifying_) {
      notifying_ = true;
      events_.schedule(max(free_at(), events_.now()), *this, 0);
    }
  }
  void attach(fabric::PortListener& listener) override { listener_ = &listener; }

 private:
  void on_packet(const fabric::Packet& packet) override { listener_->on_packet(packet); }
  void on_event(std::uint64_t /*argument*/) override {
    notifying_ = false;
    if (free_at() > events_.now()) {
      notify_when_free();  // others have sent meanwhile
    } else {
      listener_->on_transmit_ready();
    }
  }

  struct Path {
    fabric::Link* link;
    fabric::Port* port;
  };
  [[nodiscard]] fabric::Port& choose(const fabric::Packet& packet) const {
    const std::size_t first = packet.entropy % paths_.size();
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      const Path& path = paths_[(first + i) % paths_.size()];
      if (path.link->is_up()) {
        return *path.port;
      }
    }
    return *paths_[first].port;
  }

  EventQueue& events_;
  const Picoseconds fifo_;  // what it takes to send a full one
  std::vector<Path> paths_;
  fabric::PortListener* listener_ = nullptr;
  bool notifying_ = false;
};

Network::Network(EventQueue& events, const NetworkConfig& config, unsigned interfaces, std::uint64_t seed, bool timed,
                 const std::string& name, const std::vector<instance_link::AddressRange>& addresses) {
  if (!config.capture_file.empty()) {
    capture_ = std::make_unique<CaptureFile>(config.capture_file);
  }
  for (unsigned i = 0; i < interfaces; ++i) {
    ports_.push_back(std::make_unique<BondedPort>(
        events,
        Picoseconds{transmit_fifo_bytes * 8'000'000'000'000 / link_settings(config, seed, timed).bits_per_second}));
  }
  if (!config.links.empty()) {
    uplinks_ = std::make_unique<instance_link::Uplinks>(events, pool_, config.ports, name, addresses,
                                                        static_cast<instance_link::LocalAddresses&>(*this));
  }
  const auto tapped = [&](fabric::Port& port, const std::string& recorded_name, std::uint64_t rate) {
    if (capture_ == nullptr) {
      return &port;
    }
    const std::uint32_t recorded = capture_->writer().add_interface(recorded_name, "", rate);
    taps_.push_back(std::make_unique<fabric::CaptureTap>(events, pool_, port, capture_->writer(), recorded));
    return static_cast<fabric::Port*>(taps_.back().get());
  };
  std::uint64_t stream = 0;
  for (unsigned p = 0; p < config.ports; ++p) {
    Plane plane;
    fabric::TorSettings tor = tor_settings(config, interfaces + (uplinks_ != nullptr ? 1 : 0), seed, timed);
    tor.stream = p;
    plane.tor = std::make_unique<fabric::TorSwitch>(events, pool_, tor);
    for (unsigned i = 0; i < interfaces; ++i) {
      fabric::LinkSettings settings = link_settings(config, seed, timed);
      settings.stream = stream++;
      plane.links.push_back(std::make_unique<fabric::Link>(events, pool_, settings));
      fabric::Link& link = *plane.links.back();
      ports_[i]->add(link, *tapped(link.end(0), fmt::format("rnic{}.port{}", i, p), settings.bits_per_second));
      plane.tor->attach(i, link.end(1));
    }
    if (uplinks_ != nullptr) {
      plane.tor->attach(interfaces,
                        *tapped(uplinks_->port(p), fmt::format("uplink.plane{}", p), fastest_bits_per_second));
    }
    planes_.push_back(std::move(plane));
  }
}

Network::~Network() = default;

bool Network::is_local(unsigned plane, fabric::MacAddress address) const {
  const int port = planes_.at(plane).tor->port_of(address);
  return port >= 0 && static_cast<unsigned>(port) < interfaces();
}

unsigned Network::interfaces() const {
  return static_cast<unsigned>(ports_.size());
}

fabric::Port& Network::port(unsigned interface) {
  return *ports_.at(interface);
}

fabric::Link& Network::link(unsigned interface, unsigned plane) {
  return *planes_.at(plane).links.at(interface);
}

}  // namespace orrery::models
