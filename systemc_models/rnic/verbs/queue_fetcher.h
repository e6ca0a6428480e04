// Reads a work queue that a driver fills: its doorbell record, then its entries, many at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "systemc_models/rnic/verbs/core.h"

namespace orrery::rnic {

class QueueFetcher final : public DmaClient {
 public:
  class Owner {
   public:
    // Units have come, or the record says that there are none; available() tells.
    virtual void on_fetched() = 0;
    // Record or ring can't be read, or the record promises more than the ring holds.
    virtual void on_fetch_failed() = 0;

   protected:
    ~Owner() = default;
  };
  struct Shape {
    std::uint32_t function = 0;
    QueueBuffer buffer;
    std::uint32_t offset = 0;  // of the ring in the buffer, bytes
    std::uint32_t unit_bytes = block_bytes;
    std::uint32_t log_units = 0;  // <= 15: counters have 16 bits
    std::uint64_t doorbell_record = 0;
    bool send = false;  // which half of the record counts
  };

  // Starts at unit 0. No DMA of a former life may be on the way.
  void begin(Core& core, Owner& owner, const Shape& shape);
  // Nothing is fetched any more.
  void end() { open_ = false; }
  [[nodiscard]] bool open() const { return open_; }

  // The driver has posted, or may have: looks at the record, fetches what it promises, then calls on_fetched(). Once
  // more if it is asked meanwhile.
  void ring();
  // Fetched and not consumed; whole units.
  [[nodiscard]] std::span<const std::byte> available() const {
    return {buffer_.get() + std::size_t{head_} * shape_.unit_bytes, std::size_t{tail_ - head_} * shape_.unit_bytes};
  }
  // At most what is available; fetches more if the record has promised more.
  void consume(std::uint32_t units);
  [[nodiscard]] bool fetching() const { return reading_record_ || reading_units_; }
  // More is known to be there than has been fetched.
  [[nodiscard]] bool behind() const { return fetched_ != producer_; }
  // Free-running counters of 16 bits.
  [[nodiscard]] std::uint16_t consumed() const { return static_cast<std::uint16_t>(fetched_ - (tail_ - head_)); }
  [[nodiscard]] std::uint16_t producer() const { return producer_; }
  [[nodiscard]] std::uint32_t unit_bytes() const { return shape_.unit_bytes; }
  [[nodiscard]] const Shape& shape() const { return shape_; }

 private:
  static constexpr std::uint32_t buffer_bytes = 4096;
  enum Cookie : std::uint64_t { record_cookie = 1, units_cookie = 2 };
  void on_dma(std::uint64_t cookie, bool ok) override;
  void fetch();
  void fail();

  Core* core_ = nullptr;
  Owner* owner_ = nullptr;
  Shape shape_;
  bool open_ = false;
  bool reading_record_ = false;
  bool reading_units_ = false;
  bool rung_again_ = false;
  std::uint16_t producer_ = 0;
  std::uint16_t fetched_ = 0;
  std::uint32_t asked_ = 0;  // units of the DMA on the way
  std::uint32_t capacity_ = 0;
  std::uint32_t head_ = 0;  // units in the buffer
  std::uint32_t tail_ = 0;
  std::unique_ptr<std::byte[]> buffer_;  // taken at the first use
  std::array<std::byte, 8> record_{};
};

}  // namespace orrery::rnic
