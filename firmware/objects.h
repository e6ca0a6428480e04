// The firmware's own records of what drivers created. Freestanding.
//
// They hold what can't be read back from the hardware's contexts: ownership, references, and where lists lie in
// the translation memory.
#pragma once

#include <cstdint>

#include "firmware/interface/contexts.h"
#include "firmware/object_table.h"

namespace orrery::firmware {

// A run of the translation memory.
struct Run {
  std::uint32_t start = rnic::none;
  std::uint32_t entries = 0;
};

struct Pd : Object {};
struct Uar : Object {};
struct XrcDomain : Object {};
struct TransportDomain : Object {};
struct CounterSet : Object {};

struct Mkey : Object {
  std::uint32_t pd = 0;  // 0: none
  Run run;
  std::uint8_t umr_enabled = 0;
  std::uint8_t variant = 0;
};

struct Cq : Object {
  std::uint32_t eqn = 0;
  std::uint32_t uar = 0;
  Run run;
};

enum class SrqKind : std::uint8_t { rmp = 0, xrc = 1 };
struct Srq : Object {  // `kind` is an SrqKind
  std::uint32_t pd = 0;
  std::uint32_t xrcd = 0;
  std::uint32_t cqn = 0;
  Run run;
};

struct Qp : Object {
  std::uint32_t pd = 0;
  std::uint32_t uar = 0;
  std::uint32_t send_cq = 0;
  std::uint32_t receive_cq = 0;
  std::uint32_t srq = 0;
  std::uint32_t xrcd = 0;
  std::uint32_t page_shift = 0;
  std::uint8_t service_type = 0;  // as the driver calls it
  std::uint8_t rq_type = 0;
  Run run;
};

struct Group : Object {  // a member of a multicast group
  std::uint32_t gid[4] = {};
  std::uint32_t qp = 0;
};

struct Eq {
  std::uint64_t mask = 0;  // event types it gets
  std::uint32_t references = 0;
  std::uint32_t uar = 0;
  Run run;
  ObjectState state = ObjectState::free;
  std::uint8_t vector = 0;
  std::uint8_t log_entries = 0;
};

// ---- Ethernet ---------------------------------------------------------------------------------------------------
struct Tis : Object {
  std::uint32_t transport_domain = 0;
  std::uint32_t pd = 0;
  std::uint32_t priority = 0;
};
struct Rqt : Object {
  static constexpr std::uint32_t capacity = 256;
  std::uint32_t max_size = 0;
  std::uint32_t size = 0;
  std::uint32_t rq[capacity] = {};
};
struct Tir : Object {
  std::uint32_t transport_domain = 0;
  std::uint32_t rqt = 0;  // 0: `rq`
  std::uint32_t rq = 0;
};
struct EthernetQueue : Object {  // an RQ or SQ
  std::uint32_t cqn = 0;
  std::uint32_t pd = 0;
  std::uint32_t uar = 0;
  std::uint32_t tis = 0;
  std::uint32_t counter_set = 0;
  std::uint32_t queue_state = 0;  // as the driver knows it: 0 reset, 1 ready, 3 error
  Run run;
};
struct FlowTable : Object {
  std::uint32_t type = 0;
  std::uint32_t level = 0;
  std::uint32_t log_size = 0;
  std::uint32_t miss_table = 0;
  std::uint32_t root = 0;
};
struct FlowGroup : Object {
  std::uint32_t table = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};
struct FlowEntry : Object {
  std::uint32_t table = 0;
  std::uint32_t group = 0;
  std::uint32_t index = 0;
  std::uint32_t destination = 0;  // type << 24 | number
};

}  // namespace orrery::firmware
