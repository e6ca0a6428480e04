// The RNIC's end of the wire: who may send next, packets to itself, and what arrives.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/packet_pool.h"
#include "fabric/port.h"
#include "systemc_models/rnic/verbs/core.h"
#include "systemc_models/rnic/verbs/ring.h"

namespace orrery::rnic {

// Something with packets to send: one side of a QP.
class Sendable {
 public:
  // Sends one packet. False: nothing more can be sent now.
  virtual bool transmit_next() = 0;

 protected:
  virtual ~Sendable() = default;

 private:
  friend class Wire;
  Sendable* next_ = nullptr;
  bool queued_ = false;
};

class PacketListener {
 public:
  // A RoCE packet; `content` is given back after the call unless the listener takes another reference.
  virtual void on_roce(const fabric::Packet& packet, const fabric::PacketContent& content) = 0;

 protected:
  ~PacketListener() = default;
};

class Wire final : private fabric::PortListener, private EventHandler {
 public:
  Wire(Core& core, PacketListener& listener) : core_(core), listener_(listener) {}

  void attach(fabric::Port& port) { port.attach(*this); }
  void set_frame_sink(FrameSink* sink) { frames_ = sink; }

  // Asks for transmit_next(), in turn with the others, as the transmitter becomes free.
  void ready(Sendable& sendable);
  // Waits in the queue: must not be destroyed.
  [[nodiscard]] static bool queued(const Sendable& sendable) { return sendable.queued_; }

  // A RoCE packet or a frame of the function, at once; nothing leaves while its port is down. Takes over the content's
  // reference.
  void send(std::uint32_t function, fabric::ContentHandle content, std::uint16_t entropy, bool local);
  void send(std::uint32_t function, const fabric::Packet& packet);
  // A copy of a multicast packet, for the members in this RNIC.
  void send_copy(std::uint32_t function, fabric::ContentHandle content, std::uint16_t entropy);

  // Packets that were damaged or empty.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  void on_packet(const fabric::Packet& packet) override;
  void receive(const fabric::Packet& packet);
  void on_transmit_ready() override { pump(); }
  void on_event(std::uint64_t argument) override;
  void loop(const fabric::Packet& packet);
  [[nodiscard]] fabric::Packet packet_of(fabric::ContentHandle content, std::uint16_t entropy) const;
  void pump();

  Core& core_;
  PacketListener& listener_;
  FrameSink* frames_ = nullptr;
  Sendable* first_ = nullptr;
  Sendable* last_ = nullptr;
  bool pumping_ = false;
  std::vector<fabric::Packet> looped_;
  std::vector<fabric::Packet> delivering_;
  bool loop_scheduled_ = false;
  Ring<fabric::Packet> arrived_;  // in the receive pipeline, an event for each
  std::uint64_t dropped_ = 0;
};

}  // namespace orrery::rnic
