// The function's DMA to memory that came without a file descriptor: VFIO_USER_DMA_READ and
// VFIO_USER_DMA_WRITE, the server's commands to its client.
//
// Asynchronous throughout: a request returns at once, its messages go out a window at a time, and the
// replies come whenever the client finds time. Nothing here is ever waited for: a client that is
// waiting for the answer to a region access may hold the very lock it needs to answer us.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "pcie/function_access.h"
#include "qemu_bridge/codec.h"
#include "qemu_bridge/observer.h"

namespace orrery::bridge {

// What the messages need of their session.
class DmaMessagesHost {
 public:
  // True if every byte of the range lies in mappings made without a descriptor that allow the access.
  [[nodiscard]] virtual bool may_access(Iova address, std::uint64_t size, bool write) const = 0;
  // Queues one message, `head` then `body`; false if the client is gone or hopelessly behind.
  virtual bool send_command(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
  // Asks for a call of run_deferred() from the event loop, soon.
  virtual void call_soon() = 0;

 protected:
  ~DmaMessagesHost() = default;
};

class DmaMessages final : public pcie::MessageMemory {
 public:
  // Messages under way at once.
  static constexpr std::size_t window = 64;

  DmaMessages(DmaMessagesHost& host, SessionObserver& observer, SessionCounters& counters)
      : host_(host), observer_(observer), counters_(counters) {}
  ~DmaMessages();

  // The client takes messages of up to `transfer` >= 1 bytes of data.
  void open(std::uint64_t transfer);
  // Fails what is under way (calling back), and everything that is asked for from now on.
  void close();

  void read(Iova address, std::span<std::byte> into, Done done, void* context) override;
  void write(Iova address, std::span<const std::byte> from, Done done, void* context) override;

  // A reply from the client; false if it answers nothing that was asked.
  bool take_reply(const wire::Header& header, std::span<const std::byte> payload);
  // Calls back for requests that failed without a message.
  void run_deferred();

  [[nodiscard]] std::size_t outstanding() const { return requests_.size(); }

 private:
  struct Request {
    bool write = false;
    bool failed = false;
    bool finished = false;  // called back; waits for its elders to leave the queue
    Iova address;
    std::byte* into = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t size = 0;
    std::uint64_t issued = 0;     // bytes for which a message has gone out
    std::uint32_t in_flight = 0;  // messages without reply
    Done done = nullptr;
    void* context = nullptr;
  };
  struct Message {
    bool used = false;
    std::uint16_t id = 0;
    std::uint64_t request = 0;  // sequence number
    std::uint64_t offset = 0;   // in the request
    std::uint64_t size = 0;
  };

  void submit(const Request& request);
  void defer();
  void issue();
  bool send_next(std::uint64_t sequence, Request& request);
  [[nodiscard]] bool ended(const Request& request) const {
    return request.in_flight == 0 && (request.failed || request.issued == request.size);
  }
  void finish(std::uint64_t sequence);
  Request& at(std::uint64_t sequence) { return requests_[sequence - first_]; }

  DmaMessagesHost& host_;
  SessionObserver& observer_;
  SessionCounters& counters_;
  bool open_ = false;
  std::uint64_t transfer_ = 0;
  std::deque<Request> requests_;  // in the order of submission
  std::uint64_t first_ = 0;       // sequence number of requests_.front()
  std::uint64_t next_issue_ = 0;  // sequence number of the first request not wholly issued
  bool deferred_ = false;         // some requests ended without a reply and want run_deferred()
  std::array<Message, window> messages_;
  std::size_t in_flight_ = 0;
  std::uint16_t next_id_ = 0;
};

}  // namespace orrery::bridge
