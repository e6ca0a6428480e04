// What the parts of one VerbsEngine share.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "common/event_queue.h"
#include "fabric/packet_pool.h"
#include "fabric/port.h"
#include "firmware/interface/contexts.h"
#include "systemc_models/rnic/verbs/dma_pool.h"
#include "systemc_models/rnic/verbs/key_table.h"
#include "systemc_models/rnic/verbs/mac_addresses.h"
#include "systemc_models/rnic/verbs/queue_format.h"
#include "systemc_models/rnic/verbs/translation.h"
#include "systemc_models/rnic/verbs/verbs_engine.h"

namespace orrery::rnic {

struct Core {
  Core(const VerbsSettings& s, const QueueFormat& f, EventSink& e)
      : settings(s), format(f), sink(e), translation(s.translation_entries), keys(translation, functions) {}

  VerbsSettings settings;
  const QueueFormat& format;
  EventSink& sink;
  TranslationMemory translation;
  FunctionWindows functions;
  MacAddresses macs{functions};
  KeyTable keys;
  DmaPool dma;
  SegmentList segments;  // scratch of one call
  std::array<VerbsCounters, max_functions> counters{};
  std::array<FrameCounters, max_functions> frame_counters{};
  std::array<QueueCounters, max_counter_sets> queue_counters{};
  pcie::Simulation* simulation = nullptr;  // of the ports; null until the first is attached
  fabric::Port* port = nullptr;
  fabric::PacketPool* packets = nullptr;

  [[nodiscard]] EventQueue& events() const { return simulation->events; }
  [[nodiscard]] Picoseconds now() const { return simulation->events.now(); }
  [[nodiscard]] bool usable(std::uint32_t function) const {
    return function < max_functions && dma.port(function) != nullptr && functions.at(function).enabled != 0;
  }
  void report(EventCode code, std::uint32_t function, std::uint32_t object, std::uint32_t detail = 0) {
    sink.on_hardware_event({code, function, object, detail});
  }
};

inline void count_frame(FrameCounter& counter, std::uint64_t bytes) {
  ++counter.frames;
  counter.bytes += bytes;
}

// A context may only be taken anew once the DMA of its former life has drained.
struct Lifetime {
  bool destroyed = false;     // and not yet idle
  std::uint64_t barrier = 0;  // DmaPool::barrier() when it was
};

}  // namespace orrery::rnic
