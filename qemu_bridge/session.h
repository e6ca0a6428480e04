// One client's conversation with one function: bytes and descriptors in, replies out.
//
// Holds all of the protocol's state and none of its transport: a socket, a test or a fuzzer drives it
// through SessionOutput. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/file_descriptor.h"
#include "pcie/function_access.h"
#include "qemu_bridge/capabilities.h"
#include "qemu_bridge/codec.h"
#include "qemu_bridge/descriptor_inbox.h"
#include "qemu_bridge/dma_messages.h"
#include "qemu_bridge/interrupts.h"
#include "qemu_bridge/observer.h"

namespace orrery::bridge {

struct SessionOptions {
  // Off: no BAR is offered for mapping, so that every access is a message (and a TLP).
  bool allow_bar_mapping = true;
  // Mappings one client may hold, 1 to 65535.
  std::uint32_t max_dma_maps = static_cast<std::uint32_t>(wire::default_max_dma_maps);
  // Grant a separate socket for the server's commands to clients that ask for one.
  bool allow_twin_socket = true;
};

// The two streams of a connection. Without twin-socket mode everything travels on `main`.
enum class Channel : std::uint8_t {
  main,     // commands of the client and their replies
  command,  // twin-socket mode: commands of the server and their replies
};

class SessionOutput {
 public:
  // Queues one message, `head` then `body`, with descriptors (which stay the caller's). Sends, buffers or
  // both, but never calls the session back. False: the client is gone, or has left too much unread; the
  // session then ends.
  virtual bool send(Channel channel, std::span<const std::byte> head, std::span<const std::byte> body,
                    std::span<const int> descriptors) = 0;
  // Opens Channel::command and returns the client's end of it; none: not supported.
  virtual FileDescriptor open_command_channel() = 0;
  // Asks for one call of Session::run_deferred() from the event loop, soon; never calls it from here.
  virtual void call_soon() = 0;

 protected:
  ~SessionOutput() = default;
};

class Session final : private DmaMessagesHost {
 public:
  enum class State : std::uint8_t {
    awaiting_version,  // connected; only VFIO_USER_VERSION is acceptable
    ready,             // negotiated
    closed,            // over: flush what is queued, close the streams, destroy
  };

  // `function`, `output` and `observer` outlive the session.
  Session(pcie::FunctionAccess& function, SessionOutput& output, SessionObserver& observer,
          const SessionOptions& options = {});
  // Ends the session if it is still on.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Input: fill space(channel), then say how many bytes came, and hand over the descriptors that came
  // with them. A stream may be cut anywhere. Descriptors belong to the message that the last of these
  // bytes is part of: the kernel ends a read after bytes that carried some, and clients send a message
  // at a time.
  [[nodiscard]] std::span<std::byte> space(Channel channel) { return buffer(channel).space(); }
  // descriptors_lost: the kernel had more than it could deliver (MSG_CTRUNC).
  void received(Channel channel, std::size_t bytes, std::span<FileDescriptor> descriptors = {},
                bool descriptors_lost = false);
  // See SessionOutput::call_soon().
  void run_deferred();
  // The client has gone, or must go: its interrupts, mappings and descriptors are released, the function
  // is told. `reason` is for the log. From inside received() or run_deferred() it takes effect at their end.
  void close(std::string_view reason);

  [[nodiscard]] State state() const { return state_; }
  // Why the session is closed.
  [[nodiscard]] const std::string& close_reason() const { return close_reason_; }
  [[nodiscard]] const SessionCounters& counters() const { return counters_; }
  [[nodiscard]] const Interrupts& interrupts() const { return interrupts_; }
  [[nodiscard]] std::size_t dma_mappings() const { return mappings_.size(); }
  // Asks the client to let go of the device (the REQ interrupt: QEMU unplugs it), or tells it that the
  // device has failed beyond recovery (ERR: QEMU stops the machine). False if it can't be told.
  bool request_release() { return interrupts_.notify(wire::irq_req); }
  bool report_failure() { return interrupts_.notify(wire::irq_err); }

 private:
  struct Region {
    std::uint64_t size = 0;
    std::uint32_t flags = 0;
    int memory_fd = -1;
  };
  struct Mapping {
    std::uint64_t size = 0;
    pcie::DmaAccess access;
    bool has_descriptor = false;
  };
  struct Message {
    wire::Header header;
    std::span<const std::byte> payload;
    std::span<FileDescriptor> descriptors;
    bool surplus_descriptors = false;
  };

  [[nodiscard]] ServerLimits limits() const {
    return {DescriptorInbox::capacity, std::min<std::uint64_t>(options_.max_dma_maps, wire::default_max_dma_maps)};
  }

  // DmaMessagesHost
  [[nodiscard]] bool may_access(Iova address, std::uint64_t size, bool write) const override;
  bool send_command(std::span<const std::byte> head, std::span<const std::byte> body) override;
  void call_soon() override { output_.call_soon(); }

  [[nodiscard]] MessageBuffer& buffer(Channel channel) { return buffers_[static_cast<std::size_t>(channel)]; }
  void process(Channel channel, const Message& message);
  void process_command(const Message& message);
  int dispatch(const Message& message);
  void answer(const wire::Header& command, int error);
  // `size` bytes of reply payload to fill in; they go out if the handler returns 0.
  std::span<std::byte> reply_payload(std::size_t size);
  void give_up(std::string_view reason);
  void end_processing();

  // One handler per command: 0, or the errno of the error reply.
  int version(const Message& message);
  int dma_map(const Message& message);
  int dma_unmap(const Message& message);
  int device_get_info(const Message& message);
  int device_get_region_info(const Message& message);
  int device_get_region_io_fds(const Message& message);
  int device_get_irq_info(const Message& message);
  int device_set_irqs(const Message& message);
  int region_read(const Message& message);
  int region_write(const Message& message);
  int region_write_multi(const Message& message);
  int device_reset(const Message& message);
  int device_feature(const Message& message);
  int migration_data(const Message& message);

  [[nodiscard]] bool in_region(std::uint32_t region, std::uint64_t offset, std::uint64_t size) const;
  void read_function(std::uint32_t region, std::uint64_t offset, std::span<std::byte> into);
  void write_function(std::uint32_t region, std::uint64_t offset, std::span<const std::byte> from);
  int unmap(std::uint64_t address, std::uint64_t size);
  void unmap_all();

  pcie::FunctionAccess& function_;
  SessionOutput& output_;
  SessionObserver& observer_;
  SessionOptions options_;
  State state_ = State::awaiting_version;
  bool processing_ = false;  // inside received() or run_deferred()
  bool giving_up_ = false;
  std::string close_reason_;
  SessionCounters counters_;
  ClientProposal client_;
  bool twin_socket_ = false;

  std::array<Region, wire::region_count> regions_;
  Interrupts interrupts_;
  DmaMessages dma_;
  std::map<std::uint64_t, Mapping> mappings_;  // by IOVA; disjoint

  std::array<MessageBuffer, 2> buffers_;
  DescriptorInbox inbox_;         // of Channel::main
  std::vector<std::byte> reply_;  // header, then payload
  std::size_t reply_size_ = 0;    // of the payload
  int reply_descriptor_ = -1;
  FileDescriptor reply_owned_;  // keeps reply_descriptor_ open if nobody else does
};

}  // namespace orrery::bridge
