// How devices and links plug together: a Port is what a device sees of the link (tap, instance link) at its socket.
#pragma once

#include "common/time.h"
#include "fabric/packet.h"

namespace orrery::fabric {

// A device's side of a Port. Calls come from the event loop, or from within Port::send of a port that is not a link.
class PortListener {
 public:
  // A frame's last bit has arrived. The listener takes over the packet's content reference.
  virtual void on_packet(const Packet& packet) = 0;
  // The transmitter asked about by Port::notify_when_free is free.
  virtual void on_transmit_ready() {}

 protected:
  ~PortListener() = default;
};

// One end of a full-duplex connection. One thread.
class Port {
 public:
  // Queues the packet behind what was sent before (first come, first served, no limit: whoever must not queue here
  // waits for free_at()); it may leave `delay` after now (a switch's latency; now + delay never decreases from call
  // to call). Takes over the packet's content reference. Returns when its last bit will have left: the sender's queue
  // is thus known without an event for every departure.
  virtual Picoseconds send_after(const Packet& packet, Picoseconds delay) = 0;
  Picoseconds send(const Packet& packet) { return send_after(packet, {}); }
  // When everything sent so far will have left; at most now() if the transmitter is idle.
  [[nodiscard]] virtual Picoseconds free_at() const = 0;
  // Calls the listener's on_transmit_ready() once, at free_at() as it is then (so: not before all packets sent
  // meanwhile have left). Further calls before that are one.
  virtual void notify_when_free() = 0;
  // Who receives. Must be set before the first packet arrives; the listener outlives the port's last event.
  virtual void attach(PortListener& listener) = 0;

 protected:
  ~Port() = default;
};

}  // namespace orrery::fabric
