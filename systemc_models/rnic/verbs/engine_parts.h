// The inside of VerbsEngine: its blocks, its QPs, and where received packets go.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "systemc_models/rnic/ethernet/ethernet_engine.h"
#include "systemc_models/rnic/verbs/queue_pair.h"
#include "systemc_models/rnic/verbs/requester.h"
#include "systemc_models/rnic/verbs/responder.h"
#include "systemc_models/rnic/verbs/verbs_engine.h"

namespace orrery::rnic {

// Bit of a fault's token: the responder's side.
inline constexpr std::uint32_t responder_token = 0x8000'0000U;

struct VerbsEngine::Parts final : PacketListener, EventHandler {
  Parts(const VerbsSettings& settings, const QueueFormat& format, EventSink& sink);
  ~Parts();
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Core core;
  Addresses addresses;
  EventQueues eqs;
  CompletionQueues cqs;
  ScatterPool scatters;
  SharedReceiveQueues srqs;
  Wire wire;
  SendEngine send_engine;
  AtomicUnit atomics;
  EthernetEngine ethernet;
  std::unique_ptr<fabric::TimerPool> timers;  // from the first attach() on
  std::unique_ptr<Blocks> blocks;
  SparseTable<std::unique_ptr<QueuePair>> qps;
  std::vector<GroupContext> groups;

  void attach(std::uint32_t function, pcie::DevicePort& port);
  ControlResult write_qp(std::uint32_t qpn, const QpContext& context);
  ControlResult destroy_qp(std::uint32_t qpn);
  ControlResult write_mkey(std::uint32_t index, const MkeyContext& context);
  ControlResult write_group(std::uint32_t index, const GroupContext& context);
  [[nodiscard]] QueuePair* find_qp(std::uint32_t qpn) const;
  [[nodiscard]] const FaultRecord* find_fault(std::uint32_t token) const;
  void reset(std::uint32_t function);

  // Whether a destroyed context (or changed mkey) is idle; makes its number free if it is.
  bool settle(ContextKind kind, std::uint32_t index);
  // Reports it to the sink when it is.
  void wait_for(ContextKind kind, std::uint32_t index);
  // Frees QPs that have become quiet.
  void reap();

  void on_roce(const fabric::Packet& packet, const fabric::PacketContent& content) override;

 private:
  void on_event(std::uint64_t argument) override;
  void count_received(std::uint32_t function, const fabric::Packet& packet);
  void deliver(QueuePair& qp, const fabric::Packet& packet, const fabric::PacketContent& content);
  void deliver_group(const fabric::Packet& packet, const fabric::PacketContent& content);
  [[nodiscard]] static bool transport_matches(const QueuePair& qp, fabric::RoceTransport transport);

  struct Waiting {
    ContextKind kind;
    std::uint32_t index;
  };
  std::map<std::uint32_t, std::uint64_t> mkey_barriers_;                // changed, DMA may be on the way
  std::map<std::uint32_t, std::unique_ptr<QueuePair>> leaving_;         // destroyed, not quiet; by number
  std::vector<std::unique_ptr<QueuePair>> reset_qps_;                   // of reset functions, not quiet
  std::map<fabric::Gid, std::vector<std::uint32_t>> members_;           // multicast GID → QPs
  std::array<std::array<std::uint32_t, 2>, max_functions> management_;  // QP0 and QP1 of each function
  std::vector<Waiting> waiting_;
  bool polling_ = false;
};

}  // namespace orrery::rnic
