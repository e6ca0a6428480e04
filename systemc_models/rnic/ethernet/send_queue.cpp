#include "systemc_models/rnic/ethernet/send_queue.h"

#include <algorithm>
#include <cstring>

#include "fabric/packet_pool.h"
#include "fabric/wire_bytes.h"

namespace orrery::rnic {
namespace {

namespace wire = fabric::wire;
constexpr std::uint32_t mac_bytes = 12, ethernet_bytes = 14, tag_bytes = 4;
constexpr Picoseconds quiet_poll{1'000'000};  // while DMA of a former life is on the way
constexpr std::uint32_t smallest_frame = 60;  // without FCS (IEEE 802.3 §4A.2.3.2.4)

void count(FrameCounter& counter, std::uint64_t bytes) {
  ++counter.frames;
  counter.bytes += bytes;
}

}  // namespace

ControlResult SendQueue::write(FrameBlocks& blocks, std::uint32_t number, const FrameQueueContext& context) {
  if (context.log_entries > 15 || context.function >= max_functions) {
    return ControlResult::bad_value;
  }
  if (life.destroyed) {
    return ControlResult::busy;
  }
  blocks_ = &blocks;
  number_ = number;
  if (!valid_) {
    valid_ = true;
    context_ = context;
    context_.state = FrameQueueState::reset;
  } else if (context.function != context_.function) {
    return ControlResult::bad_value;
  }
  if (context.state == context_.state) {
    return ControlResult::ok;
  }
  switch (context.state) {
    case FrameQueueState::reset:
      end();
      context_.state = FrameQueueState::reset;
      return ControlResult::ok;
    case FrameQueueState::ready:
      if (context_.state != FrameQueueState::reset) {
        return ControlResult::wrong_state;
      }
      context_.state = FrameQueueState::ready;
      start_when_quiet_ = true;
      start();
      return ControlResult::ok;
    case FrameQueueState::error:
      context_.state = FrameQueueState::error;
      advance();
      return ControlResult::ok;
  }
  return ControlResult::bad_value;
}

void SendQueue::start() {
  if (!start_when_quiet_ || !quiet()) {
    return;
  }
  drop_jobs();
  start_when_quiet_ = leaving_ = false;
  fetcher_.begin(
      blocks_->core, *this,
      {context_.function, context_.buffer, 0, block_bytes, context_.log_entries, context_.doorbell_record, true});
  if (rung_) {
    rung_ = false;
    fetcher_.ring();
  }
}

void SendQueue::doorbell() {
  start();
  if (!start_when_quiet_) {
    fetcher_.ring();
  } else if (!rung_) {
    rung_ = true;
    blocks_->core.events().schedule(blocks_->core.now() + quiet_poll, *this, 0);
  }
}

void SendQueue::on_event(std::uint64_t argument) {
  static_cast<void>(argument);
  start();
  if (start_when_quiet_) {
    blocks_->core.events().schedule(blocks_->core.now() + quiet_poll, *this, 0);
  }
}

void SendQueue::end() {
  fetcher_.end();
  leaving_ = true;
  start_when_quiet_ = rung_ = false;
  if (dma_in_flight == 0) {
    drop_jobs();
  }
}

void SendQueue::forget() {
  fetcher_.end();
  start_when_quiet_ = rung_ = false;
  drop_jobs();
  context_ = {};
  valid_ = false;
  life = {};
}

void SendQueue::drop(Job& job) {
  if (!job.content.empty()) {
    blocks_->core.packets->release(job.content);
    job.content = {};
  }
  if (job.large != nullptr) {
    blocks_->large.give_back(*job.large);
    job.large = nullptr;
  }
}

void SendQueue::drop_jobs() {
  while (!jobs_.empty()) {
    drop(jobs_.front());
    jobs_.pop();
  }
}

void SendQueue::on_fetch_failed() {
  context_.state = FrameQueueState::error;
  count(blocks_->core.frame_counters[context_.function].sent_errors, 0);
}

void SendQueue::collect() {
  while (!leaving_ && fetcher_.open() && jobs_.size() < most_jobs) {
    const auto units = fetcher_.available();
    if (units.empty()) {
      return;
    }
    const std::uint32_t blocks = blocks_->core.format.send_blocks(units);
    if (units.size() < std::size_t{blocks} * block_bytes) {
      return;
    }
    const std::uint32_t number = jobs_.end();
    Job& job = jobs_.push(Job{});
    job.index = fetcher_.consumed();
    begin_job(job, number, units.first(std::size_t{blocks} * block_bytes));
    fetcher_.consume(blocks);
  }
}

void SendQueue::begin_job(Job& job, std::uint32_t number, std::span<const std::byte> wqe) {
  blocks_->core.format.decode_frame(wqe, request_);
  job.signalled = request_.signalled;
  job.raw_opcode = request_.raw_opcode;
  job.ip_checksum = request_.ip_checksum;
  job.l4_checksum = request_.l4_checksum;
  job.insert_vlan = request_.insert_vlan;
  job.vlan_tci = request_.vlan_tci;
  job.code = context_.state == FrameQueueState::ready ? prepare(job, number, wqe) : CompletionCode::flushed;
  if (job.code != CompletionCode::success) {
    drop(job);
    job.kind = Job::Kind::nothing;
    job.fetched = true;
  }
}

CompletionCode SendQueue::prepare(Job& job, std::uint32_t number, std::span<const std::byte> wqe) {
  Core& core = blocks_->core;
  const FrameWorkRequest& r = request_;
  if (r.opcode == SendOpcode::nop) {
    job.fetched = true;
    return CompletionCode::success;
  }
  if (r.opcode != SendOpcode::ethernet && r.opcode != SendOpcode::ethernet_lso) {
    return CompletionCode::local_qp_operation;
  }
  std::byte* room = nullptr;
  if (r.opcode == SendOpcode::ethernet_lso) {
    if (r.length == 0 || r.length > LargePacket::max_payload) {
      return CompletionCode::local_length;
    }
    job.kind = Job::Kind::large;
    job.large = &blocks_->large.take();
    LargePacket& large = *job.large;
    large.header_bytes = r.header_bytes;
    std::memcpy(large.header.data(), wqe.data() + r.header_offset, r.header_bytes);
    if (!large.segmenter.begin(std::span(large.header).first(r.header_bytes), static_cast<std::uint32_t>(r.length),
                               r.segment_bytes)) {
      return CompletionCode::local_qp_operation;
    }
    large.payload.resize(std::max<std::size_t>(large.payload.size(), r.length));
    room = large.payload.data();
  } else {
    const std::uint64_t total = r.length + r.header_bytes + (r.insert_vlan ? tag_bytes : 0);
    if (total < ethernet_bytes || total > fabric::max_frame_bytes) {
      return CompletionCode::local_length;
    }
    job.kind = Job::Kind::frame;
    job.content = core.packets->make();
    const auto bytes = static_cast<std::uint32_t>(total);
    const std::span<std::byte> frame = core.packets->reserve(job.content, std::max(bytes, smallest_frame));
    std::fill(frame.begin() + bytes, frame.end(), std::byte{0});
    const std::uint32_t first = r.insert_vlan ? tag_bytes : 0;
    std::memcpy(frame.data() + first, wqe.data() + r.header_offset, r.header_bytes);
    room = frame.data() + first + r.header_bytes;
  }
  bool pending = false;
  core.segments.clear();
  for (std::uint32_t i = 0; i < r.entry_count; ++i) {
    const DataEntry& entry = r.entries[i];
    if (entry.is_inline) {
      if (!core.segments.add_nothing(entry.length)) {  // a gap that is filled below
        return CompletionCode::local_qp_operation;
      }
    } else if (entry.length != 0) {
      pending = true;
      const KeyRequest key{.function = context_.function,
                           .pd = context_.pd,
                           .qp = number_,
                           .key = entry.key,
                           .address = entry.address,
                           .length = entry.length,
                           .access = key_local_read,
                           .reserved_allowed = (context_.flags & frame_queue_reserved_key) != 0};
      if (core.keys.resolve(key, core.segments).status != WalkStatus::ok) {
        return CompletionCode::local_protection;
      }
    }
  }
  if (pending) {
    core.dma.read(context_.function, core.segments.all(), room, *this, number);
  }
  for (std::uint32_t i = 0; i < r.entry_count; ++i) {
    if (r.entries[i].is_inline) {
      std::memcpy(room, wqe.data() + r.entries[i].address, r.entries[i].length);
    }
    room += r.entries[i].length;
  }
  job.fetched = !pending;
  return CompletionCode::success;
}

void SendQueue::on_dma(std::uint64_t cookie, bool ok) {
  if (leaving_) {
    if (dma_in_flight == 0) {
      drop_jobs();
      start();
    }
    return;
  }
  Job& job = jobs_.at(static_cast<std::uint32_t>(cookie));
  job.fetched = true;
  if (!ok) {
    drop(job);
    job.kind = Job::Kind::nothing;
    job.code = CompletionCode::local_protection;
  }
  advance();
}

void SendQueue::advance() {
  if (start_when_quiet_) {
    start();
    return;
  }
  collect();
  while (!jobs_.empty() && jobs_.front().fetched) {
    Job& job = jobs_.front();
    if (job.kind != Job::Kind::nothing && context_.state == FrameQueueState::ready) {
      blocks_->wire.ready(*this);
      return;
    }
    complete(job);
    collect();
  }
}

bool SendQueue::transmit_next() {
  if (leaving_ || jobs_.empty() || !jobs_.front().fetched || jobs_.front().kind == Job::Kind::nothing ||
      context_.state != FrameQueueState::ready) {
    return false;
  }
  Job& job = jobs_.front();
  fabric::PacketPool& packets = *blocks_->core.packets;
  if (job.kind == Job::Kind::large) {
    LargePacket& large = *job.large;
    const fabric::ContentHandle content = packets.make();
    const std::uint32_t bytes = large.segmenter.frame_bytes(job.next);
    const std::span<std::byte> frame = packets.reserve(content, std::max(bytes, smallest_frame));
    std::fill(frame.begin() + bytes, frame.end(), std::byte{0});
    large.segmenter.write(job.next, std::span(large.header).first(large.header_bytes), large.payload,
                          frame.first(bytes));
    if (++job.next < large.segmenter.frames()) {
      send_frame(content, false, false);
      return true;
    }
    send_frame(content, false, false);
  } else {
    const fabric::ContentHandle content = job.content;
    job.content = {};
    if (job.insert_vlan) {
      const std::span<std::byte> frame = packets.at(content).writable_bytes();
      std::memmove(frame.data(), frame.data() + tag_bytes, mac_bytes);
      wire::set(frame, mac_bytes, 2, wire::ethertype_vlan);
      wire::set(frame, mac_bytes + 2, 2, job.vlan_tci);
    }
    send_frame(content, job.ip_checksum, job.l4_checksum);
  }
  complete(jobs_.front());
  collect();
  // What needs no wire behind it.
  while (!jobs_.empty() && jobs_.front().fetched && jobs_.front().kind == Job::Kind::nothing) {
    complete(jobs_.front());
    collect();
  }
  return !jobs_.empty() && jobs_.front().fetched;
}

void SendQueue::send_frame(fabric::ContentHandle content, bool ip, bool l4) {
  fabric::PacketPool& packets = *blocks_->core.packets;
  const std::span<std::byte> frame = packets.at(content).writable_bytes();
  if (ip || l4) {
    write_checksums(frame, ip, l4);
  }
  FrameCounters& counters = blocks_->core.frame_counters[context_.function];
  const fabric::MacAddress destination{wire::get(frame, 0, 6)};
  count(destination.is_broadcast()   ? counters.sent_broadcast
        : destination.is_multicast() ? counters.sent_multicast
                                     : counters.sent_unicast,
        frame.size());
  fabric::Packet packet = fabric::packet_of(packets, content);
  packet.created = blocks_->core.now();
  blocks_->wire.send(context_.function, packet);
}

void SendQueue::complete(Job& job) {
  if (context_.state == FrameQueueState::error && job.code == CompletionCode::success) {
    job.code = CompletionCode::flushed;
  }
  Completion completion;
  completion.code = job.code;
  completion.raw_opcode = job.raw_opcode;
  completion.vendor_code = job.code == CompletionCode::success ? 0 : 1;
  completion.wqe_index = job.index;
  completion.qp = number_;
  completion.user_index = context_.user_index;
  const bool wanted = job.signalled || job.code != CompletionCode::success;
  if (job.code != CompletionCode::success) {
    context_.state = FrameQueueState::error;
    if (job.code != CompletionCode::flushed) {
      count(blocks_->core.frame_counters[context_.function].sent_errors, 0);
    }
  }
  drop(job);
  jobs_.pop();
  if (wanted && !blocks_->cqs.post(context_.function, context_.cq, completion)) {
    context_.state = FrameQueueState::error;
    fetcher_.end();
  }
}

}  // namespace orrery::rnic
