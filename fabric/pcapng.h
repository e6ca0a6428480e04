// Captures of simulated packets that Wireshark opens.
//
// pcapng (IETF draft-ietf-opsawg-pcapng): one Section, an Interface per captured port, Enhanced Packets. Times are
// nanoseconds of simulated time, rounded down (if_tsresol 9: of picoseconds Wireshark 4.0 shows a wrong second). The
// writer makes bytes and hands them to a sink: no file in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/event_queue.h"
#include "common/time.h"
#include "fabric/packet_pool.h"
#include "fabric/port.h"

namespace orrery::fabric {

// Where a capture's bytes go, e.g. a file. Bytes arrive in order, whole blocks at a time.
class CaptureSink {
 public:
  virtual void write(std::span<const std::byte> bytes) = 0;

 protected:
  ~CaptureSink() = default;
};

// Direction of an Enhanced Packet's epb_flags (§4.3.1), as the captured device sees it.
enum class CaptureDirection : std::uint8_t { inbound = 1, outbound = 2 };

class PcapngWriter {
 public:
  // Writes the section header. `application`: shb_userappl, e.g. "Orrery".
  PcapngWriter(CaptureSink& sink, std::string_view application);

  // A new interface (Ethernet, no FCS); returns its number, from 0. Name and description as Wireshark shows them.
  // `bits_per_second`: if_speed, 0 for unknown.
  std::uint32_t add_interface(std::string_view name, std::string_view description, std::uint64_t bits_per_second);
  // `interface`: from add_interface. `original_bytes`: of the frame before it was cut to `frame`; at least its size.
  void write_packet(std::uint32_t interface, Picoseconds when, CaptureDirection direction,
                    std::span<const std::byte> frame, std::uint32_t original_bytes);
  [[nodiscard]] std::uint64_t packets() const { return packets_; }

 private:
  void put16(std::uint16_t value);
  void put32(std::uint32_t value);
  void put_padded(std::span<const std::byte> bytes);
  void put_option(std::uint16_t code, std::span<const std::byte> value);
  void begin_block(std::uint32_t type);
  void end_block();

  CaptureSink& sink_;
  std::vector<std::byte> block_;  // reused
  std::uint32_t interfaces_ = 0;
  std::uint64_t packets_ = 0;
};

// Sits between a device and its port and records what passes either way: when it may leave, and when it arrives.
// Packets without content (studies) are recorded as nothing and counted.
class CaptureTap final : public Port, private PortListener {
 public:
  // `interface`: of `writer`. Packets longer than `snap_bytes` are cut in the capture.
  CaptureTap(EventQueue& events, const PacketPool& pool, Port& inner, PcapngWriter& writer, std::uint32_t interface,
             std::uint32_t snap_bytes = max_frame_bytes);

  Picoseconds send_after(const Packet& packet, Picoseconds delay) override;
  [[nodiscard]] Picoseconds free_at() const override { return inner_.free_at(); }
  void notify_when_free() override { inner_.notify_when_free(); }
  void attach(PortListener& listener) override { listener_ = &listener; }

  [[nodiscard]] std::uint64_t without_content() const { return without_content_; }

 private:
  void on_packet(const Packet& packet) override;
  void on_transmit_ready() override;
  void record(const Packet& packet, CaptureDirection direction, Picoseconds when);

  EventQueue& events_;
  const PacketPool& pool_;
  Port& inner_;
  PcapngWriter& writer_;
  PortListener* listener_ = nullptr;
  std::uint32_t interface_;
  std::uint32_t snap_bytes_;
  std::uint64_t without_content_ = 0;
  std::vector<std::byte> frame_;
};

}  // namespace orrery::fabric
