// The RNIC's end of the wire: who may send next, packets to itself, and what arrives.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/packet_pool.h"
#include "fabric/port.h"
#include "systemc_models/rnic/verbs/core.h"

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

  // Sends at once. Takes over the content's reference.
  void send(fabric::ContentHandle content, std::uint16_t entropy, bool local);
  void send(const fabric::Packet& packet);
  // To the members of this RNIC, not to the wire.
  void loop(const fabric::Packet& packet);

  // Packets that were damaged or empty.
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  void on_packet(const fabric::Packet& packet) override;
  void on_transmit_ready() override { pump(); }
  void on_event(std::uint64_t argument) override;
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
  std::uint64_t dropped_ = 0;
};

}  // namespace orrery::rnic
