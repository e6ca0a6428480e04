// A scripted guest's mlx5 driver and verbs: as much as it takes to write to another guest's memory.
//
// The commands and formats are those that the stock driver and libmlx5 use (firmware/layouts.h, docs/firmware.md);
// errors of the device are thrown. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "common/time.h"
#include "firmware/field.h"
#include "studies/scripted_guest.h"

namespace orrery::studies {

// A command's input or output: big-endian words.
class CommandBytes {
 public:
  explicit CommandBytes(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] std::uint32_t word(std::size_t offset) const;
  void set(std::size_t offset, std::uint32_t value);
  void set_wide(std::size_t offset, std::uint64_t value);
  // A field of the structure at `base`.
  void put(std::size_t base, const firmware::Field& field, std::uint32_t value);
  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Mlx5Client {
 public:
  struct Settings {
    std::uint32_t lid = 1;         // the peer's, on an InfiniBand port
    std::uint32_t mtu = 4096;      // 256 … 4096
    std::uint32_t log_depth = 8;   // of the send queue, in blocks of 64 bytes
    std::uint32_t max_inline = 0;  // bytes: smaller messages are in the WQE
  };
  // Brings the function up (ENABLE_HCA … INIT_HCA) and makes a PD, a memory key over all of the guest's memory, a CQ
  // and an RC QP. Throws Error with the command that failed.
  Mlx5Client(ScriptedGuest& guest, const Settings& settings);

  [[nodiscard]] std::uint32_t qp() const { return qp_; }
  [[nodiscard]] std::uint32_t key() const { return key_; }
  [[nodiscard]] ScriptedGuest& guest() { return guest_; }
  // Both ends; before the first post.
  void connect(const Mlx5Client& peer);

  // Posts an RDMA WRITE of `length` bytes, signalled, and rings the doorbell now. Throws Error if the queue is full.
  void write(std::uint64_t from, std::uint32_t length, std::uint64_t to, std::uint32_t remote_key);
  // WRITEs that can be posted now.
  [[nodiscard]] unsigned room() const;
  // Takes the completions that are there; throws Error for one that isn't a success.
  unsigned poll();

 private:
  CommandBytes run(CommandBytes input, std::size_t output_bytes);
  std::uint64_t mailboxes(const std::byte* data, std::size_t bytes);
  std::uint64_t add_pages(CommandBytes& input, std::uint64_t bytes);
  void bring_up();
  void make_objects();
  [[nodiscard]] CommandBytes qp_input(std::uint32_t opcode) const;

  ScriptedGuest& guest_;
  Settings settings_;
  std::uint64_t queue_ = 0;
  std::uint64_t mailbox_area_ = 0;
  std::uint64_t mailbox_next_ = 0;
  std::uint8_t token_ = 0;
  std::uint32_t uar_ = 0;
  std::uint32_t pd_ = 0;
  std::uint32_t key_ = 0;
  std::uint32_t cq_ = 0;
  std::uint32_t qp_ = 0;
  std::uint64_t cq_ring_ = 0;
  std::uint64_t cq_doorbell_ = 0;
  std::uint64_t send_ring_ = 0;
  std::uint64_t qp_doorbell_ = 0;
  std::uint32_t posted_ = 0;     // blocks
  std::uint32_t completed_ = 0;  // blocks
  std::uint32_t consumed_ = 0;   // CQEs
};

}  // namespace orrery::studies
