// The uplinks of a server's ToR switches: what a switch sends to other servers, and what may come in from them.
//
// A Port for each plane's switch. Behind it are the peers, servers whose sessions are open: a frame for an address of
// one peer goes to that one, a multicast or an address that nobody has yet sent from goes to all. What one peer sends
// never goes to another: each pair of servers that is to talk has a link of its own, and no loop can be.
//
// Nothing is delivered that shouldn't be: each frame from a peer must come from an address that can be that peer's and
// go to one that is known here. What isn't so is counted, dropped, and said aloud (the 1st, 10th, 100th … time).
// Functional mode: frames take no time. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/event_queue.h"
#include "fabric/instance_link/session.h"
#include "fabric/mac_table.h"
#include "fabric/packet_pool.h"
#include "fabric/port.h"

namespace orrery::instance_link {

// Frames to and from one peer, or all of them since the start.
struct PeerCounters {
  std::uint64_t sent = 0;
  std::uint64_t sent_bytes = 0;  // of frames, without FCS
  std::uint64_t received = 0;    // and passed on to the switch
  std::uint64_t received_bytes = 0;
  std::uint64_t congested = 0;  // not sent: the peer doesn't read as fast
  // Refused on arrival.
  std::uint64_t own_source = 0;           // from an address of this server: a duplicate
  std::uint64_t foreign_source = 0;       // from an address of a third server, or no single one
  std::uint64_t unknown_destination = 0;  // to an address that nobody here has
  std::uint64_t malformed = 0;            // said to be RoCE, and isn't
  std::uint64_t foreign_plane = 0;        // on a plane that this server's switches don't have

  [[nodiscard]] std::uint64_t refused() const {
    return own_source + foreign_source + unknown_destination + malformed + foreign_plane;
  }
};

// What the switches know.
class LocalAddresses {
 public:
  // Whether `address` was last seen at a port of `plane`'s switch other than the uplink.
  [[nodiscard]] virtual bool is_local(unsigned plane, fabric::MacAddress address) const = 0;

 protected:
  ~LocalAddresses() = default;
};

class Peer;

class Uplinks {
 public:
  // `addresses`: of this server's own RNICs, at most max_ranges. `local`, `events` and `pool` outlive the uplinks.
  Uplinks(EventQueue& events, fabric::PacketPool& pool, unsigned planes, std::string server,
          std::vector<AddressRange> addresses, const LocalAddresses& local);
  ~Uplinks();
  Uplinks(const Uplinks&) = delete;
  Uplinks& operator=(const Uplinks&) = delete;

  // Where the switch of `plane` is plugged in; its listener gets what peers send.
  [[nodiscard]] fabric::Port& port(unsigned plane);
  [[nodiscard]] unsigned planes() const { return static_cast<unsigned>(ports_.size()); }
  [[nodiscard]] const std::string& server() const { return server_; }
  [[nodiscard]] const std::vector<AddressRange>& addresses() const { return addresses_; }
  [[nodiscard]] unsigned peers() const { return static_cast<unsigned>(peers_.size()); }
  // All peers' since the start, those that have gone too.
  [[nodiscard]] const PeerCounters& total() const { return total_; }
  // Frames that no peer could take because none was there.
  [[nodiscard]] std::uint64_t without_peer() const { return without_peer_; }

 private:
  friend class Peer;
  class UplinkPort;
  Refusal join(Peer& peer, const Hello& hello);
  void leave(const Peer& peer);
  void send(unsigned plane, const fabric::Packet& packet);
  void deliver(Peer& peer, const Frame& frame);
  void refuse(Peer& peer, std::uint64_t PeerCounters::*counter, const char* what, fabric::MacAddress address);
  [[nodiscard]] bool is_own(fabric::MacAddress address) const;

  EventQueue& events_;
  fabric::PacketPool& pool_;
  std::string server_;
  std::vector<AddressRange> addresses_;
  const LocalAddresses& local_;
  std::vector<std::unique_ptr<UplinkPort>> ports_;
  std::vector<Peer*> peers_;               // open ones
  std::vector<fabric::MacTable> learned_;  // by plane: addresses outside all ranges, the value is a peer's number
  std::uint16_t next_number_ = 0;
  PeerCounters total_;
  std::uint64_t without_peer_ = 0;
};

// A peer, or who wants to become one: a session whose frames are the uplinks'. A shell gives it the bytes.
class Peer final : private SessionListener {
 public:
  class Transport {
   public:
    // session().has_output() is true where it was not.
    virtual void on_output() = 0;
    virtual void on_open() = 0;
    // Called once; the peer must not be destroyed from within.
    virtual void on_closed(Refusal reason, bool by_peer) = 0;

   protected:
    ~Transport() = default;
  };

  // `uplinks` and `transport` outlive the peer. Name, addresses and planes of `settings` are the uplinks' own: planes
  // that they don't have are taken off.
  Peer(Uplinks& uplinks, SessionSettings settings, Transport& transport);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] const PeerCounters& counters() const { return counters_; }

 private:
  friend class Uplinks;
  Refusal on_peer(const Hello& hello) override;
  void on_frame(const Frame& frame) override;
  void on_output() override;
  void on_closed(Refusal reason, bool by_peer) override;

  Uplinks& uplinks_;
  Transport& transport_;
  Session session_;
  bool joined_ = false;
  std::uint16_t number_ = 0;
  PeerCounters counters_;
};

}  // namespace orrery::instance_link
