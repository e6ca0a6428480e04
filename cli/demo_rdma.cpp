#include "cli/demo_rdma.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

namespace orrery::cli {

namespace {

// More than the 32 bytes that mlx5 puts into the CQE itself.
constexpr const char* read_size = "256";
constexpr const char* rdma_check_kind = "RDMA between the guests' RNICs: stock drivers, libraries and programs";

// The words of the line whose first word is `first`; none: there is no such line.
std::vector<std::string> line_of(const std::string& output, const std::string& first) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) {
      words.push_back(word);
    }
    if (!words.empty() && words[0] == first) {
      return words;
    }
  }
  return {};
}

// The line that ends a pingpong: "200 iters in 0.02 seconds = 81.36 usec/iter".
std::string line_with(const std::string& output, const std::string& part) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) {
      return line;
    }
  }
  return {};
}

// The words of the line that has `part` in it.
std::vector<std::string> words_with(const std::string& output, const std::string& part) {
  std::istringstream text(line_with(output, part));
  return {std::istream_iterator<std::string>(text), {}};
}

}  // namespace

std::vector<models::GuestConfig> demo_guests(const models::ServerConfig& config, const models::Topology& topology) {
  std::vector<models::GuestConfig> guests = models::guests_of(config, topology);
  std::vector<std::string> rnics;
  for (const models::Topology::Endpoint& endpoint : topology.endpoints) {
    if (endpoint.kind == models::EndpointKind::rnic) {
      rnics.push_back(endpoint.name);
    }
  }
  if (!config.guests.empty() || config.rnic.personality != models::RnicPersonality::mlx5 || rnics.size() < 2) {
    return guests;
  }
  models::GuestConfig second = guests.front();
  guests.front().name = "left";
  std::erase(guests.front().devices, rnics.back());
  second.name = "right";
  second.devices = {rnics.back()};
  second.memory_mib = 512;
  guests.push_back(second);
  return guests;
}

std::vector<std::string> demo_network_arguments(const bridge::RunDirectory& run, unsigned guest) {
  const auto socket = [&](unsigned which) { return run.file(fmt::format("between{}", which)); };
  return {"-netdev",
          fmt::format("dgram,id=between,local.type=unix,local.path={},remote.type=unix,remote.path={}", socket(guest),
                      socket(1 - guest)),
          "-device", fmt::format("virtio-net-pci,bus=pcie.0,netdev=between,mac=52:54:00:09:00:{:02x}", guest + 1)};
}

// Addresses: 10.9.0.N between the guests, over which programs agree; 10.8.0.N on mlx5_0's own port, if it is Ethernet.
void DemoRdma::bring_up() {
  for (unsigned guest = 0; guest < 2; ++guest) {
    std::string script = fmt::format(
        "modprobe mlx5_ib && modprobe ib_uverbs && modprobe virtio_net || exit 1;"
        "device=$(grep -l 52:54:00:09 /sys/class/net/*/address | cut -d/ -f5);"
        "ip addr add 10.9.0.{0}/24 dev $device && ip link set $device up || exit 1;"
        "for device in /sys/class/infiniband/*/device/net/*; do"
        "  [ ! -e $device ] || ip link set ${{device##*/}} up || exit 1; done;",
        guest + 1);
    if (ethernet()) {
      script += fmt::format(
          "ip addr add 10.8.0.{0}/24 dev $(ls /sys/class/infiniband/mlx5_0/device/net) || exit 1;"
          "cd /sys/class/infiniband/mlx5_0/ports/1; tries=0; gid=;"
          "until [ -n \"$gid\" ] || [ $tries -eq 40 ]; do"
          "  for i in 0 1 2 3 4 5 6 7; do"
          "    grep -q 'RoCE v2' gid_attrs/types/$i 2>/dev/null && grep -q ffff:0a08:000{0} gids/$i && gid=$i; done;"
          "  [ -n \"$gid\" ] || sleep 0.25; tries=$((tries + 1)); done;"
          "echo gid_index: $gid;",
          guest + 1);
    }
    script +=
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do"
        " ibv_devinfo | grep -q PORT_DOWN || break; sleep 0.5; done; ibv_devinfo";
    const DemoGuests::Outcome outcome = guests_.run(guest, {"sh", "-c", script});
    std::size_t active = 0;
    for (std::size_t at = 0; (at = outcome.output.find("PORT_ACTIVE", at)) != std::string::npos; ++at) {
      ++active;
    }
    std::size_t expected = 0;
    for (const bridge::GuestRootComplex& complex : guests_[guest].guest().topology.root_complexes) {
      for (const bridge::GuestSwitch& a_switch : complex.switches) {
        expected += static_cast<std::size_t>(
            std::count_if(a_switch.endpoints.begin(), a_switch.endpoints.end(),
                          [](const bridge::GuestEndpoint& endpoint) { return endpoint.name.starts_with("rnic"); }));
      }
    }
    checks_.push_back({outcome.status == 0 && active == expected, rdma_check_kind,
                       fmt::format("ibv_devinfo in {}: {} of {} RNICs have an active port", guests_[guest].name(),
                                   active, expected)});
    const std::vector<std::string> firmware = line_of(outcome.output, "fw_ver:");
    const std::vector<std::string> board = line_of(outcome.output, "board_id:");
    rows_.push_back(
        {"ibv_devinfo", guests_[guest].name(),
         fmt::format("{} active ({}), firmware {}, board {}", active, ethernet() ? "RoCE" : "InfiniBand",
                     firmware.size() > 1 ? firmware[1] : "unknown", board.size() > 1 ? board[1] : "unknown")});
    if (ethernet()) {
      const std::vector<std::string> gid = line_of(outcome.output, "gid_index:");
      gid_index_[guest] = gid.size() > 1 ? gid[1] : "none";
      checks_.push_back({gid.size() > 1, rdma_check_kind,
                         fmt::format("{}: GID {} of mlx5_0 is RoCE v2 with its IPv4 address", guests_[guest].name(),
                                     gid_index_[guest])});
    }
  }
}

DemoGuests::PairOutcome DemoRdma::pair(const std::vector<std::string>& program, const char* gid_option,
                                       const std::string& what) {
  std::array<std::vector<std::string>, 2> commands{program, program};
  for (unsigned guest = 0; guest < 2; ++guest) {
    commands[guest].insert(commands[guest].end(), {"-d", "mlx5_0"});
    if (ethernet()) {
      commands[guest].insert(commands[guest].end(), {gid_option, gid_index_[guest]});
    }
  }
  commands[1].emplace_back("10.9.0.1");
  return commands_pair(commands[0], commands[1], what);
}

DemoGuests::PairOutcome DemoRdma::commands_pair(const std::vector<std::string>& server,
                                                const std::vector<std::string>& client, const std::string& what) {
  DemoGuests::PairOutcome outcome;
  // perftest times itself by the emulated CPU's cycle counter, and gives up if that ran unevenly: once more, then.
  for (int attempt = 0; attempt < 3; ++attempt) {
    outcome = guests_.run_pair(0, 1, server, client);
    if (outcome.passed() ||
        (outcome.server.output + outcome.client.output).find("produce a report") == std::string::npos) {
      break;
    }
  }
  checks_.push_back({outcome.passed(), rdma_check_kind, fmt::format("{}: {}", client.front(), what)});
  return outcome;
}

RnicLink DemoRdma::link_of(const std::string& rnic) const {
  for (const models::Platform::LinkReport& link : host_.platform().links()) {
    if (link.name == rnic) {
      return {link.up_id, link.down_id};
    }
  }
  return {};
}

void DemoRdma::measure_read() {
  const TlpKeeper keeper(host_.platform().simulation());
  const DemoGuests::PairOutcome outcome = pair({"ib_read_lat", "-n", "20", "-s", read_size, "-F"}, "-x",
                                               "256 bytes read from the other guest's memory, 20 times");
  const std::vector<std::string> result = line_of(outcome.client.output, read_size);
  rows_.push_back(
      {"ib_read_lat", "256 B", result.size() > 4 ? result[4] + " us typical, by the guest's clock" : "none"});
  const std::vector<pcie::TraceRecord> records = keeper.records();
  for (const std::string& responder : responders_) {
    if (!breakdown_) {
      breakdown_ =
          read_breakdown(records, link_of(requester_), link_of(responder), host_.platform().simulation().names);
      responder_ = responder;
    }
  }
  checks_.push_back({breakdown_.has_value() && breakdown_->steps.size() == 7, rdma_check_kind,
                     breakdown_ ? fmt::format("a READ's TLPs on all links: {:.1f} ns from doorbell to CQE",
                                              breakdown_->total.nanoseconds())
                                : std::string("no READ among the TLPs")});
}

// The second guest's RNIC writes into the memory of a GPU below the same switch as the first guest's mlx5_0.
void DemoRdma::write_to_gpu() {
  const TlpKeeper keeper(host_.platform().simulation());
  const std::string gid = ethernet() ? fmt::format("-g {}", gid_index_[0]) : "";
  // Three levels up from the RNIC is its switch's upstream port; the GPUs (class 0302) hang from its other ports.
  const std::string server = fmt::format(
      "gpu=$(ls -d /sys/class/infiniband/mlx5_0/device/../../*/*/class | xargs grep -l 0x0302 | head -n 1);"
      "gpu=${{gpu%/class}}; exec orrery-guest-verbs -d mlx5_0 {} -G ${{gpu##*/}}",
      gid);
  std::vector<std::string> client{"orrery-guest-verbs", "-d", "mlx5_0", "-n", "8", "-s", "65536"};
  if (ethernet()) {
    client.insert(client.end(), {"-g", gid_index_[1]});
  }
  client.emplace_back("10.9.0.1");
  const DemoGuests::PairOutcome outcome =
      commands_pair({"sh", "-c", server}, client,
                    "random WRITEs, READs, SENDs and atomics on the other guest's GPU, every byte compared");
  std::uint64_t direct = 0;
  std::uint64_t crossed = 0;
  for (const pcie::TraceRecord& record : keeper.records()) {
    if (record.at() != pcie::AddressType::translated) {
      continue;
    }
    for (const models::Platform::LinkReport& link : host_.platform().links()) {
      direct += link.up_id == record.link && link.name.starts_with("rnic") ? record.count : 0U;
      crossed += link.up_id == record.link && link.name.starts_with("switch") ? record.count : 0U;
    }
  }
  std::string way =
      fmt::format("{} TLPs with AT = 10b from RNICs, {} of them on a link to the root complex", direct, crossed);
  if (host_.platform().config().rnic.virtualization == models::RnicVirtualization::vstellar) {
    checks_.push_back({direct > 0 && crossed == 0, rdma_check_kind, "GPUDirect: " + way});
  }
  const std::vector<std::string> passed = words_with(outcome.client.output, "pass,");
  rows_.push_back({"GPUDirect", passed.size() > 3 ? passed[3] + " B" : "", std::move(way)});
}

void DemoRdma::run(const std::function<void(const std::string&)>& step) {
  step(fmt::format("Two guests' mlx5 drivers bring up their RNICs ({}): ibv_devinfo",
                   ethernet() ? "RoCE v2" : "InfiniBand"));
  bring_up();
  step("ibv_rc_pingpong between the guests, data compared");
  const DemoGuests::PairOutcome pingpong =
      pair({"ibv_rc_pingpong", "-c", "-n", "50"}, "-g", "50 messages of 4 KiB there and back, compared");
  rows_.push_back({"ibv_rc_pingpong", "4 KiB", line_with(pingpong.client.output, "iters in")});
  step("ib_write_bw: RDMA WRITE into the other guest's memory");
  const DemoGuests::PairOutcome write = pair({"ib_write_bw", "-n", "100", "-s", "65536", "-F"}, "-x",
                                             "100 messages of 64 KiB written to the other guest");
  const std::vector<std::string> bandwidth = line_of(write.client.output, "65536");
  rows_.push_back(
      {"ib_write_bw", "64 KiB", bandwidth.size() > 3 ? bandwidth[3] + " MiB/s, by the guest's clock" : "none"});
  step("ib_read_lat: RDMA READ, every TLP noted");
  measure_read();
  if (ethernet()) {
    step("rping: connection by address (rdma_cm), data compared");
    commands_pair({"rping", "-s", "-a", "10.8.0.1", "-C", "20", "-V"},
                  {"rping", "-c", "-a", "10.8.0.1", "-C", "20", "-V"},
                  "20 buffers read and written by address of the other guest, compared");
    rows_.push_back({"rping", "64 B", "20 pings, connected by IP address through the connection manager"});
  }
  if (const std::string release = guests_.exec(0, {"uname", "-r"}); release < "6.19" && release[0] == '6') {
    rows_.push_back(
        {"GPUDirect", "",
         "left out: Linux " + release.substr(0, release.find('\n')) + " doesn't export GPU memory (6.19 does)"});
    return;
  }
  step("GPUDirect: the other guest's RDMA into GPU memory");
  write_to_gpu();
}

void DemoRdma::print() const {
  fmt::print("\nRDMA between two guests (simulated time is paced: a guest's clock counts its own pauses)\n");
  for (const Row& row : rows_) {
    fmt::print("  {:<16} {:<7} {}\n", row.program, row.what, row.result);
  }
  if (!breakdown_) {
    return;
  }
  const models::NetworkConfig& network = host_.platform().config().network;
  const models::RnicsConfig& rnic = host_.platform().config().rnic;
  bool response = false;
  fmt::print("\nOne RDMA READ of {} bytes, {} from {}: {:.1f} ns from doorbell to CQE, simulated\n", read_size,
             requester_, responder_, breakdown_->total.nanoseconds());
  for (const LatencyStep& step : breakdown_->steps) {
    std::string detail;
    // On its way a request's packet passes both RNICs, then its answer is gathered; a response passes both RNICs.
    const Picoseconds inside = response ? rnic.pipeline : rnic.pipeline + rnic.gather;
    const Picoseconds fixed = 2 * network.propagation + network.switch_latency + inside;
    if (step.wire && step.time >= fixed) {
      detail = fmt::format("RNICs {:.1f} + 2 cables {:.1f} + ToR {:.1f} + bytes on the wire {:.1f}",
                           inside.nanoseconds(), (2 * network.propagation).nanoseconds(),
                           network.switch_latency.nanoseconds(), (step.time - fixed).nanoseconds());
    }
    response = response || step.wire;
    for (const auto& [name, time] : step.hops) {
      detail += fmt::format("{}{} {:.1f}", detail.empty() ? "" : " + ", name, time.nanoseconds());
    }
    fmt::print("  {:>8.1f} ns  {:<34} {}\n", step.time.nanoseconds(), step.what, detail);
  }
  fmt::print("       0.0 ns  firmware                           it made the QP; the data path is the hardware's\n");
}

nlohmann::json DemoRdma::json() const {
  nlohmann::json all{{"programs", nlohmann::json::array()}};
  for (const Row& row : rows_) {
    all["programs"].push_back({{"program", row.program}, {"what", row.what}, {"result", row.result}});
  }
  if (breakdown_) {
    nlohmann::json steps = nlohmann::json::array();
    for (const LatencyStep& step : breakdown_->steps) {
      nlohmann::json hops = nlohmann::json::array();
      for (const auto& [name, time] : step.hops) {
        hops.push_back({{"where", name}, {"ps", time.count}});
      }
      steps.push_back({{"step", step.what}, {"ps", step.time.count}, {"hops", hops}});
    }
    all["read_latency"] = {{"total_ps", breakdown_->total.count}, {"steps", steps}};
  }
  return all;
}

}  // namespace orrery::cli
