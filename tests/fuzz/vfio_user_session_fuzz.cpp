// Fuzz target: a whole vfio-user session over its life, with descriptors, interrupts and DMA under way.
//
// Input: a program of operations for the client, the function and the transport (see run()). Checked: the
// function is never asked for anything outside its regions or mappings, every DMA request is called back
// exactly once, no descriptor is left open, an error reply is a bare header.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "qemu_bridge/session.h"
#include "tests/fuzz/require.h"

namespace orrery::bridge {
namespace {

using fuzz::require;

constexpr std::uint64_t register_bytes = 4096;
constexpr std::uint64_t memory_bytes = std::uint64_t{1} << 20;
constexpr unsigned vectors = 5;

// Descriptors of each kind that a client may send. Open for the life of the process.
struct Pool {
  Pool() {
    descriptors[0] = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    descriptors[1] = ::memfd_create("fuzz", MFD_CLOEXEC);
    std::array<int, 2> ends{};
    require(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0, "a pipe");
    descriptors[2] = ends[1];
    descriptors[3] = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  }
  std::array<int, 4> descriptors{};
};

class CheckedFunction final : public pcie::FunctionAccess {
 public:
  std::string name() const override { return "fuzz0"; }
  std::array<pcie::BarDescription, pcie::bar_count> bars() const override {
    std::array<pcie::BarDescription, pcie::bar_count> all{};
    all[0] = {register_bytes, false, false, -1};
    all[2] = {memory_bytes, true, true, memory_fd};
    return all;
  }
  std::uint32_t config_size() const override { return 4096; }
  unsigned msix_vectors() const override { return vectors; }

  void config_read(std::uint32_t offset, std::span<std::byte> into) override {
    check_config(offset, into.size());
    std::fill(into.begin(), into.end(), std::byte{0xc0});
  }
  void config_write(std::uint32_t offset, std::span<const std::byte> from) override {
    check_config(offset, from.size());
  }
  void bar_read(unsigned bar, std::uint64_t offset, std::span<std::byte> into) override {
    check_bar(bar, offset, into.size());
    std::fill(into.begin(), into.end(), std::byte{0xba});
  }
  void bar_write(unsigned bar, std::uint64_t offset, std::span<const std::byte> from) override {
    check_bar(bar, offset, from.size());
    if (sink != nullptr) {
      sink->msix(static_cast<unsigned>(from[0]));
    }
  }
  void set_interrupt_sink(pcie::InterruptSink* to) override { sink = to; }
  void reset() override {}

  pcie::MapResult dma_map(Iova iova, std::uint64_t size, pcie::DmaAccess access, std::optional<pcie::FileWindow> window,
                          pcie::MessageMemory* messages) override {
    require(range_is_valid(iova.value, size) && iova.value % 4096 == 0 && size % 4096 == 0, "whole pages");
    require(access.read || access.write, "some right");
    require(window.has_value() == (messages == nullptr), "a descriptor or messages");
    require(!window || ::fcntl(window->fd, F_GETFD) >= 0, "a descriptor that is open");
    for (const auto& [start, other] : mappings) {
      require(start + (other.size - 1) < iova.value || iova.value + (size - 1) < start, "no overlap");
    }
    if (next_result != pcie::MapResult::ok) {
      return std::exchange(next_result, pcie::MapResult::ok);
    }
    mappings.emplace(iova.value, Mapping{size, messages});
    return pcie::MapResult::ok;
  }
  pcie::MapResult dma_unmap(Iova iova, std::uint64_t size) override {
    const auto it = mappings.find(iova.value);
    require(it != mappings.end() && it->second.size == size, "only what was mapped is unmapped");
    mappings.erase(it);
    return pcie::MapResult::ok;
  }
  void dma_unmap_all() override { mappings.clear(); }
  void disconnect() override {
    require(sink == nullptr, "interrupts are detached first");
    mappings.clear();
    gone = true;
  }

  struct Mapping {
    std::uint64_t size = 0;
    pcie::MessageMemory* messages = nullptr;
  };
  std::map<std::uint64_t, Mapping> mappings;
  pcie::InterruptSink* sink = nullptr;
  pcie::MapResult next_result = pcie::MapResult::ok;
  int memory_fd = -1;
  bool gone = false;

 private:
  void check_config(std::uint64_t offset, std::size_t size) const {
    require(!gone, "no access after the client's end");
    require(size == 1 || size == 2 || size == 4, "configuration accesses of 1, 2 or 4 bytes");
    require(offset % size == 0 && offset + size <= 4096, "an aligned access inside configuration space");
  }
  void check_bar(unsigned bar, std::uint64_t offset, std::size_t size) const {
    require(!gone, "no access after the client's end");
    require(bar == 0 || bar == 2, "a BAR that exists");
    const std::uint64_t limit = bar == 0 ? register_bytes : memory_bytes;
    require(size > 0 && offset < limit && size <= limit - offset, "an access inside the BAR");
  }
};

struct Sent {
  wire::Header header{};
  std::uint64_t count = 0;  // of a DMA command
  Channel channel = Channel::main;
};

class Output final : public SessionOutput {
 public:
  bool send(Channel channel, std::span<const std::byte> head, std::span<const std::byte> body,
            std::span<const int> descriptors) override {
    require(head.size() >= sizeof(wire::Header), "a header");
    const auto header = load<wire::Header>(head);
    require(header.message_size == head.size() + body.size(), "a size that is right");
    require((header.flags & wire::flag_error) == 0 || header.message_size == sizeof(wire::Header), "a bare error");
    require(descriptors.size() <= 1, "at most one descriptor");
    if ((header.flags & wire::type_mask) == wire::type_command) {
      commands.push_back({header, load<wire::DmaAccess>(head.subspan(sizeof(header))).count, channel});
    }
    return accepts;
  }
  FileDescriptor open_command_channel() override { return FileDescriptor(::dup(0)); }
  void call_soon() override { soon = true; }

  std::deque<Sent> commands;
  bool accepts = true;
  bool soon = false;
};

// Reads the fuzzer's bytes; zeros when they are used up.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  template <class T>
  T take() {
    T value{};
    const std::span<const std::byte> some = take_bytes(sizeof(T));
    std::copy(some.begin(), some.end(), std::as_writable_bytes(std::span(&value, 1)).begin());
    return value;
  }
  std::span<const std::byte> take_bytes(std::size_t count) {
    const std::span<const std::byte> some = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(some.size());
    return some;
  }

 private:
  std::span<const std::byte> bytes_;
};

class Run {
 public:
  Run(Input input, const Pool& pool) : input_(input), pool_(pool) {
    const auto bits = input_.take<std::uint8_t>();
    options_.allow_bar_mapping = (bits & 1U) != 0;
    options_.max_dma_maps = (bits & 2U) != 0 ? 3 : 65535;
    function_.memory_fd = pool.descriptors[1];
    session_.emplace(function_, output_, observer_, options_);
    if ((bits & 4U) == 0) {
      negotiate((bits & 8U) != 0);
    }
  }

  void run() {
    while (!input_.empty()) {
      step();
      if (output_.soon) {
        output_.soon = false;
        session_->run_deferred();
      }
    }
    session_.reset();
    require(function_.sink == nullptr && function_.mappings.empty(), "nothing of the client is left");
    require(asked_ == answered_, "every DMA request was called back once");
  }

 private:
  static void done(void* context, bool) { ++static_cast<Run*>(context)->answered_; }

  void negotiate(bool twin_socket) {
    const std::string_view json =
        twin_socket
            ? R"({"capabilities":{"write_multiple":true,"max_data_xfer_size":64,"twin_socket":{"supported":true}}})"
            : R"({"capabilities":{"write_multiple":true,"max_msg_fds":16}})";
    std::vector<std::byte> payload(sizeof(wire::Version) + json.size() + 1);
    std::copy_n(std::as_bytes(std::span(json)).begin(), json.size(), payload.begin() + sizeof(wire::Version));
    command(static_cast<std::uint16_t>(wire::Command::version), 0, payload, 0);
  }

  void feed(Channel channel, std::span<const std::byte> bytes, unsigned descriptors, bool lost = false) {
    std::vector<FileDescriptor> own;
    for (unsigned i = 0; i < descriptors; ++i) {
      own.emplace_back(::fcntl(pool_.descriptors[kind_++ / 4 % pool_.descriptors.size()], F_DUPFD_CLOEXEC, 0));
    }
    while (!bytes.empty() && session_->state() != Session::State::closed) {
      const std::span<std::byte> space = session_->space(channel);
      const std::size_t count = std::min(space.size(), bytes.size());
      std::copy_n(bytes.begin(), count, space.begin());
      session_->received(channel, count, own, lost);
      own.clear();
      lost = false;
      bytes = bytes.subspan(count);
    }
  }

  void command(std::uint16_t number, std::uint32_t flags, std::span<const std::byte> payload, unsigned descriptors) {
    std::vector<std::byte> message(sizeof(wire::Header) + payload.size());
    store(std::span(message), wire::Header{id_++, number, static_cast<std::uint32_t>(message.size()), flags, 0});
    std::copy(payload.begin(), payload.end(), message.begin() + sizeof(wire::Header));
    feed(Channel::main, message, descriptors);
  }

  // A command whose fields have the sizes they should have and values that are often right.
  void likely_command() {
    const auto choice = input_.take<std::uint8_t>();
    const std::uint32_t flags = (choice & 0x80U) != 0 ? wire::flag_no_reply : 0;
    const auto small = [&] { return std::uint64_t{input_.take<std::uint8_t>()}; };
    std::array<std::byte, 64> payload{};
    switch (choice % 7U) {
      case 0: {
        kind_ = 4;
        const bool file = (choice & 0x40U) != 0;
        store(std::span(payload),
              wire::DmaMap{32, 1 + static_cast<std::uint32_t>(small() % 3), 0, small() << 12, (small() % 8) << 12});
        command(2, flags, std::span(payload).first(32), file ? 1 : 0);
        break;
      }
      case 1:
        store(std::span(payload), wire::DmaUnmap{24, 0, small() << 12, small() << 12});
        command(3, flags, std::span(payload).first(24), 0);
        break;
      case 2: {
        kind_ = 0;
        const auto count = static_cast<std::uint32_t>(small() % 4);
        const auto bits = static_cast<std::uint32_t>(small());
        store(std::span(payload),
              wire::IrqSet{20, 4U | (8U << (bits % 3)), 2, static_cast<std::uint32_t>(small() % 6), count});
        command(8, flags, std::span(payload).first(20), (bits & 0x80U) != 0 ? 0 : count);
        break;
      }
      case 3:
        store(std::span(payload),
              wire::IrqSet{20, 1U | (8U << (small() % 3)), 2, static_cast<std::uint32_t>(small() % 6),
                           static_cast<std::uint32_t>(small() % 4)});
        command(8, flags, std::span(payload).first(20), 0);
        break;
      case 4:
        store(std::span(payload),
              wire::RegionAccess{input_.take<std::uint16_t>(), static_cast<std::uint32_t>(small() % 9),
                                 static_cast<std::uint32_t>(small())});
        command(9, flags, std::span(payload).first(16), 0);
        break;
      case 5: {
        const auto count = static_cast<std::uint32_t>(small() % 16);
        store(std::span(payload),
              wire::RegionAccess{input_.take<std::uint16_t>(), static_cast<std::uint32_t>(small() % 9), count});
        command(10, flags, std::span(payload).first(16 + count), 0);
        break;
      }
      default:
        store(std::span(payload), wire::RegionInfo{static_cast<std::uint32_t>(small()), 0,
                                                   static_cast<std::uint32_t>(small() % 10), 0, 0, 0});
        command(5, flags, std::span(payload).first(32), 0);
        break;
    }
  }

  void ask_for_dma(bool write) {
    const std::uint64_t address = input_.take<std::uint32_t>() & 0xfffffU;
    const std::size_t size = input_.take<std::uint8_t>();
    const auto it = std::find_if(function_.mappings.begin(), function_.mappings.end(),
                                 [](const auto& mapping) { return mapping.second.messages != nullptr; });
    if (it == function_.mappings.end() || asked_ - answered_ > 200) {
      return;
    }
    ++asked_;
    if (write) {
      it->second.messages->write(Iova{address}, std::span(buffer_).first(size), done, this);
    } else {
      it->second.messages->read(Iova{address}, std::span(buffer_).first(size), done, this);
    }
  }

  void answer_dma() {
    if (output_.commands.empty()) {
      return;
    }
    const auto how = input_.take<std::uint8_t>();
    const std::size_t which = how % output_.commands.size();
    const Sent sent = output_.commands[which];
    output_.commands.erase(output_.commands.begin() + static_cast<std::ptrdiff_t>(which));
    const bool read = sent.header.command == static_cast<std::uint16_t>(wire::Command::dma_read);
    std::vector<std::byte> message(sizeof(wire::Header) + sizeof(wire::DmaAccess) + (read ? sent.count : 0));
    std::uint32_t flags = wire::type_reply;
    if ((how & 0x80U) != 0) {
      flags |= wire::flag_error;
      message.resize(sizeof(wire::Header));
    } else {
      store(std::span(message).subspan(sizeof(wire::Header)), wire::DmaAccess{0, sent.count});
    }
    store(std::span(message), wire::Header{sent.header.message_id, sent.header.command,
                                           static_cast<std::uint32_t>(message.size()), flags, 5});
    feed(sent.channel, message, 0);
  }

  void step() {
    const auto op = input_.take<std::uint8_t>();
    switch (op % 16U) {
      case 0: {
        const auto bytes = input_.take_bytes(input_.take<std::uint8_t>());
        feed(Channel::main, bytes, op / 16U, false);
        break;
      }
      case 1:
      case 2: {
        const auto number = input_.take<std::uint8_t>();
        const auto flags = input_.take<std::uint8_t>();
        const auto payload = input_.take_bytes(input_.take<std::uint8_t>());
        command(number % 24U, flags & 0x7fU, payload, (flags & 0x80U) != 0 ? op / 16U : 0);
        break;
      }
      case 3:
      case 4:
      case 5:
      case 6:
        likely_command();
        break;
      case 7:
        if (function_.sink != nullptr) {
          function_.sink->msix(op / 16U);
        }
        break;
      case 8:
        ask_for_dma(false);
        break;
      case 9:
        ask_for_dma(true);
        break;
      case 10:
        answer_dma();
        break;
      case 11:
        feed(Channel::command, input_.take_bytes(input_.take<std::uint8_t>()), 0);
        break;
      case 12:
        function_.next_result = static_cast<pcie::MapResult>(op / 16U % 6U);
        break;
      case 13:
        if (op / 16U == 15) {
          output_.accepts = false;
        }
        break;
      case 14:
        kind_ = op / 16U;
        break;
      default:
        if (op / 16U == 15) {
          session_->close("fuzzed");
        } else {
          static_cast<void>(session_->request_release());
        }
        break;
    }
  }

  Input input_;
  const Pool& pool_;
  SessionOptions options_;
  CheckedFunction function_;
  Output output_;
  SessionObserver observer_;
  std::array<std::byte, 256> buffer_{};
  std::uint64_t asked_ = 0;
  std::uint64_t answered_ = 0;
  unsigned kind_ = 0;  // which kind of descriptor comes next, times 4
  std::uint16_t id_ = 1;
  std::optional<Session> session_;
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
