// Fuzz target: a relay between a hostile client and hostile servers that come and go.
//
// Input: a program of operations for client, server and transport (see step()). Checked: each request of the client is
// answered once while its connection is wanted, messages have the sizes that they claim, no descriptor goes to
// the client or is left open, tables stay bounded.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "qemu_bridge/relay/relay.h"
#include "tests/fuzz/require.h"

namespace orrery::bridge {
namespace {

using fuzz::require;

// Descriptors of each kind that a client may send. Open for the life of the process.
struct Pool {
  std::array<int, 3> descriptors{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), ::memfd_create("fuzz", MFD_CLOEXEC),
                                 ::open("/dev/null", O_RDWR | O_CLOEXEC)};
};

// Reads the fuzzer's bytes; zeros when they are used up.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    const auto some = bytes(1);
    return some.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(some[0]);
  }
  std::span<const std::byte> bytes(std::size_t count) {
    const std::span<const std::byte> some = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(some.size());
    return some;
  }

 private:
  std::span<const std::byte> bytes_;
};

template <class T>
std::vector<std::byte> bytes_of(const T& value) {
  return payload_of(value);
}

class Run final : public RelayOutput, public RelayObserver {
 public:
  Run(Input input, const Pool& pool) : input_(input), pool_(pool), relay_(*this, *this) {
    const std::uint8_t bits = input_.byte();
    if ((bits & 1U) == 0) {
      relay_.server_connected();
      constexpr std::string_view json = R"({"capabilities":{"write_multiple":true,"twin_socket":{"supported":true}}})";
      std::vector<std::byte> payload(sizeof(wire::Version) + json.size() + 1);
      std::copy_n(std::as_bytes(std::span(json)).begin(), json.size(), payload.begin() + sizeof(wire::Version));
      command(static_cast<std::uint16_t>(wire::Command::version), 0, payload, 0);
      answer_all();
      require(relay_.state() == Relay::State::live, "live after a good start");
    }
  }

  void run() {
    while (!input_.empty()) {
      step();
      require(relay_.outstanding() <= Relay::max_outstanding + 40, "a bounded number of requests");
      require(relay_.record().dma().size() <= DmaRecord::max_maps, "a bounded number of maps");
    }
    relay_.server_gone("the end");
    require(relay_.outstanding() == 0, "no request waits for a server that isn't there");
    if (relay_.client_wanted() && !raw_) {
      require(answered_ == asked_, "each request is answered once");
    }
  }

 private:
  bool send(RelaySide side, std::span<const std::byte> head, std::span<const std::byte> body,
            std::span<const int> descriptors) override {
    require(head.size() == sizeof(wire::Header), "a header");
    const auto header = load<wire::Header>(head);
    require(header.message_size == head.size() + body.size(), "a size that is right");
    for (const int fd : descriptors) {
      require(::fcntl(fd, F_GETFD) >= 0, "a descriptor that is open");
    }
    if (side == RelaySide::client) {
      require(descriptors.empty(), "no descriptor for the client");
      if ((header.flags & wire::type_mask) == wire::type_reply) {
        require((header.flags & wire::flag_error) == 0 || body.empty(), "a bare error");
        ++answered_;
      } else {
        to_client_.push_back(header);
      }
      return true;
    }
    require(descriptors.size() <= DescriptorInbox::capacity, "not too many descriptors");
    if (server_accepts_ && (header.flags & (wire::type_mask | wire::flag_no_reply)) == wire::type_command) {
      to_server_.push_back(
          {header, {body.begin(), body.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(body.size(), 32))}});
    }
    return server_accepts_;
  }

  void feed(RelaySide side, std::span<const std::byte> bytes, unsigned descriptors) {
    std::vector<FileDescriptor> own;
    for (unsigned i = 0; i < descriptors; ++i) {
      own.emplace_back(::fcntl(pool_.descriptors[kind_++ / 4 % pool_.descriptors.size()], F_DUPFD_CLOEXEC, 0));
    }
    const auto wanted = [&] {
      return side == RelaySide::client ? relay_.wants_client_input() : relay_.server_wanted();
    };
    while (!bytes.empty() && wanted()) {
      const std::span<std::byte> space = relay_.space(side);
      require(!space.empty(), "room for input that is wanted");
      const std::size_t count = std::min(space.size(), bytes.size());
      std::copy_n(bytes.begin(), count, space.begin());
      relay_.received(side, count, own);
      own.clear();
      bytes = bytes.subspan(count);
    }
  }

  static std::vector<std::byte> message(const wire::Header& header, std::span<const std::byte> payload) {
    std::vector<std::byte> bytes = bytes_of(header);
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return bytes;
  }

  void command(std::uint16_t number, std::uint32_t flags, std::span<const std::byte> payload, unsigned descriptors) {
    if (!relay_.wants_client_input()) {
      return;
    }
    const wire::Header header{id_++, number, static_cast<std::uint32_t>(sizeof(wire::Header) + payload.size()), flags,
                              0};
    asked_ += (flags & wire::flag_no_reply) == 0 && (flags & wire::type_mask) != wire::type_reply ? 1U : 0U;
    feed(RelaySide::client, message(header, payload), descriptors);
  }

  void likely_command() {
    const std::uint8_t choice = input_.byte();
    const std::uint32_t flags = (choice & 0x80U) != 0 ? wire::flag_no_reply : 0;
    const std::uint64_t a = input_.byte();
    const std::uint64_t b = input_.byte();
    switch (choice % 7U) {
      case 0:
        kind_ = 4;
        command(2, flags, bytes_of(wire::DmaMap{32, 1 + static_cast<std::uint32_t>(b % 3), 0, a << 12, (b % 8) << 12}),
                (choice & 0x40U) != 0 ? 1 : 0);
        break;
      case 1:
        command(3, flags,
                bytes_of(wire::DmaUnmap{24, a == 255 ? wire::dma_unmap_all : 0U, a == 255 ? 0 : a << 12,
                                        a == 255 ? 0 : b << 12}),
                0);
        break;
      case 2:
        kind_ = 0;
        command(8, flags,
                bytes_of(wire::IrqSet{20, 4U | (8U << (a % 3)), 2, static_cast<std::uint32_t>(a / 3 % 6),
                                      static_cast<std::uint32_t>(b % 4)}),
                (b & 0x80U) != 0 ? 0 : static_cast<unsigned>(b % 4));
        break;
      case 3:
        command(8, flags,
                bytes_of(wire::IrqSet{20, 1U | (8U << (a % 3)), 2, static_cast<std::uint32_t>(a / 3 % 6),
                                      static_cast<std::uint32_t>(b % 4)}),
                0);
        break;
      case 4:
        command(9, flags,
                bytes_of(wire::RegionAccess{a, static_cast<std::uint32_t>(b % 9), static_cast<std::uint32_t>(b)}), 0);
        break;
      case 5: {
        std::vector<std::byte> payload =
            bytes_of(wire::RegionAccess{a, (b & 1U) != 0 ? wire::region_config : 0, static_cast<std::uint32_t>(b % 8)});
        payload.resize(payload.size() + b % 8, static_cast<std::byte>(a));
        command(10, flags, payload, 0);
        break;
      }
      default: {
        std::vector<std::byte> payload = bytes_of(std::uint64_t{1});
        const std::vector<std::byte> entry =
            bytes_of(wire::WriteMultiEntry{a, wire::region_config, static_cast<std::uint32_t>(b % 10), {}});
        payload.insert(payload.end(), entry.begin(), entry.end());
        command(15, flags, payload, 0);
        break;
      }
    }
  }

  // What the device says to the oldest request; `twist` spoils it.
  void answer(std::uint8_t twist) {
    if (to_server_.empty() || !relay_.server_wanted()) {
      return;
    }
    const Asked asked = to_server_.front();
    to_server_.pop_front();
    std::vector<std::byte> payload;
    const auto word = [&](std::size_t at) {
      return asked.payload.size() < at + 4 ? 0 : load<std::uint32_t>(std::span(asked.payload).subspan(at));
    };
    switch (static_cast<wire::Command>(asked.header.command)) {
      case wire::Command::version:
        payload = bytes_of(wire::Version{0, 0});
        break;
      case wire::Command::device_get_info:
        payload = bytes_of(wire::DeviceInfo{16, wire::device_flag_pci, 9, 5});
        break;
      case wire::Command::device_get_region_info:
        payload = bytes_of(wire::RegionInfo{32, 3, word(8), 0, word(8) % 7 == 0 ? 4096U : 0U, 0});
        break;
      case wire::Command::device_get_irq_info:
        payload = bytes_of(wire::IrqInfo{16, 1, word(8), word(8) == 2 ? 5U : 0U});
        break;
      case wire::Command::region_read:
        payload = asked.payload;
        payload.resize(16 + std::size_t{word(12) % 5000});
        break;
      case wire::Command::region_write:
        payload = asked.payload;
        payload.resize(16);
        break;
      default:
        break;
    }
    if (twist != 0) {
      if (payload.empty()) {
        payload.resize(twist);
      } else {
        payload[twist % payload.size()] ^= std::byte{twist};
      }
    }
    feed(RelaySide::server,
         message({asked.header.message_id, asked.header.command,
                  static_cast<std::uint32_t>(sizeof(wire::Header) + payload.size()), wire::type_reply, 0},
                 payload),
         0);
  }
  void answer_all() {
    while (!to_server_.empty() && relay_.server_wanted()) {
      answer(0);
    }
  }

  void step() {
    const std::uint8_t op = input_.byte();
    switch (op % 16U) {
      case 0:
        raw_ = true;
        feed(RelaySide::client, input_.bytes(input_.byte()), op / 16U);
        break;
      case 1: {
        const std::uint8_t number = input_.byte();
        const std::uint8_t flags = input_.byte();
        command(number % 24U, flags & 0x7fU, input_.bytes(input_.byte()), (flags & 0x80U) != 0 ? op / 16U : 0);
        break;
      }
      case 2:
      case 3:
      case 4:
      case 5:
        likely_command();
        break;
      case 6:
      case 7:
        answer(0);
        break;
      case 8:
        answer_all();
        break;
      case 9:
        answer(input_.byte());
        break;
      case 10:
        feed(RelaySide::server, input_.bytes(input_.byte()), op / 16U);
        break;
      case 11:
        feed(RelaySide::server,
             message({static_cast<std::uint16_t>(op), static_cast<std::uint16_t>(11 + op / 16U % 2), 32, 0, 0},
                     bytes_of(wire::DmaAccess{0x1000, 16})),
             0);
        break;
      case 12:
        if (!to_client_.empty()) {
          wire::Header header = to_client_.front();
          to_client_.pop_front();
          header.flags = wire::type_reply;
          header.message_size = 32;
          if (relay_.wants_client_input()) {
            feed(RelaySide::client, message(header, bytes_of(wire::DmaAccess{0x1000, 16})), 0);
          }
        }
        break;
      case 13:
        to_server_.clear();
        relay_.server_gone("fuzzed");
        break;
      case 14:
        if (relay_.state() == Relay::State::absent && relay_.client_wanted()) {
          to_server_.clear();
          server_accepts_ = true;
          relay_.server_connected();
        }
        break;
      default:
        server_accepts_ = op / 16U != 15;
        break;
    }
  }

  struct Asked {
    wire::Header header;
    std::vector<std::byte> payload;  // its first bytes
  };

  Input input_;
  const Pool& pool_;
  std::deque<Asked> to_server_;
  std::deque<wire::Header> to_client_;  // commands
  std::uint64_t asked_ = 0;
  std::uint64_t answered_ = 0;
  bool raw_ = false;  // bytes came that weren't counted
  bool server_accepts_ = true;
  unsigned kind_ = 0;  // which kind of descriptor comes next, times 4
  std::uint16_t id_ = 1;
  Relay relay_;
};

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace
}  // namespace orrery::bridge

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace orrery::bridge;
  static const Pool pool;
  const std::size_t before = open_descriptors();
  Run(Input(std::as_bytes(std::span(data, size))), pool).run();
  orrery::fuzz::require(open_descriptors() == before, "no descriptor is left open");
  return 0;
}
