// Queue formats of the mlx5 personality: WQEs, CQEs, EQEs and doorbell records as the stock mlx5 drivers use them.
//
// Everything is big-endian. Offsets and values are interface facts, named in queue_format.cpp's tables.
#pragma once

#include <cstdint>

#include "systemc_models/rnic/verbs/queue_format.h"

namespace orrery::rnic::mlx5 {

// Event types of an EQE.
enum class EventType : std::uint8_t {
  completion = 0x00,
  path_migrated = 0x01,
  communication_established = 0x02,
  send_queue_drained = 0x03,
  cq_error = 0x04,
  qp_fatal = 0x05,
  path_migration_failed = 0x07,
  internal_error = 0x08,
  port_change = 0x09,
  command = 0x0a,
  page_request = 0x0b,
  page_fault = 0x0c,
  qp_bad_request = 0x10,
  qp_access_violation = 0x11,
  srq_catastrophic = 0x12,
  last_receive = 0x13,
  srq_limit = 0x14,
};

class Mlx5QueueFormat final : public QueueFormat {
 public:
  [[nodiscard]] std::uint16_t receive_producer(std::span<const std::byte, 8> record) const override;
  [[nodiscard]] std::uint16_t send_producer(std::span<const std::byte, 8> record) const override;
  [[nodiscard]] std::uint32_t cq_consumer(std::span<const std::byte, 8> record) const override;
  [[nodiscard]] std::uint32_t send_blocks(std::span<const std::byte> head) const override;
  void decode_send(std::span<const std::byte> wqe, QpType type, SendWorkRequest& into) const override;
  void decode_frame(std::span<const std::byte> wqe, FrameWorkRequest& into) const override;
  [[nodiscard]] bool decode_receive(std::span<const std::byte> wqe, ReceiveWorkRequest& into) const override;
  [[nodiscard]] bool decode_srq(std::span<const std::byte> wqe, ReceiveWorkRequest& into) const override;
  void encode_completion(const Completion& completion, std::uint32_t pass, std::span<std::byte> into) const override;
  [[nodiscard]] std::uint32_t event_size() const override { return 64; }
  void encode_event(const Event& event, std::uint32_t pass, std::span<std::byte> into) const override;
  [[nodiscard]] Event completion_event(std::uint32_t cqn) const override;
  [[nodiscard]] std::uint64_t atomic_result(std::uint64_t host_order) const override;
};

}  // namespace orrery::rnic::mlx5
