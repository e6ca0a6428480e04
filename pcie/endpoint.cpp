#include "pcie/endpoint.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "pcie/burst.h"
#include "pcie/completion.h"

namespace orrery::pcie {

namespace {
// Arguments of events; any other is the address of a TLP: of a completion that is ready to leave, or, with bit 0
// set, of one that has arrived.
constexpr std::uint64_t pump_event = 0;
constexpr std::uint64_t leave_event = 1;
constexpr std::uint64_t arrived_bit = 1;
constexpr std::uint32_t burst_bytes = 64 * 1024;
// Functional mode: what one event moves at most, so that a guest's register access never waits long.
constexpr std::uint64_t bytes_per_event = 1024 * 1024;
// Timed mode: TLPs are handed to the link up to this far ahead of the moment when it takes them, again once
// half of that is left.
constexpr Picoseconds issue_ahead{100'000};
constexpr Picoseconds issue_again{50'000};
constexpr std::uint64_t page_bytes = 4096;
}  // namespace

void Endpoint::Queue::push_back(DmaTransfer& t) {
  t.next = nullptr;
  if (tail_ == nullptr) {
    head_ = &t;
  } else {
    tail_->next = &t;
  }
  tail_ = &t;
}

void Endpoint::Queue::push_front(DmaTransfer& t) {
  t.next = head_;
  head_ = &t;
  if (tail_ == nullptr) {
    tail_ = &t;
  }
}

DmaTransfer* Endpoint::Queue::pop_front() {
  DmaTransfer* t = head_;
  if (t != nullptr) {
    head_ = t->next;
    if (head_ == nullptr) {
      tail_ = nullptr;
    }
    t->next = nullptr;
  }
  return t;
}

Endpoint::Endpoint(Simulation& simulation, std::string name, const EndpointSettings& settings, ConfigSpace& config,
                   const BarDescriptions& bars, DeviceModel& model)
    : simulation_(simulation),
      name_(std::move(name)),
      settings_(settings),
      config_(config),
      bars_(config, bars),
      model_(model),
      id_(simulation.names.add(name_)) {
  if (settings_.tags < 1 || settings_.tags > 1024) {
    throw Error(fmt::format("{}: {} tags", name_, settings_.tags), "use 1 to 1024");
  }
  tags_.resize(settings_.tags);
  free_tags_.reserve(settings_.tags);
  for (unsigned i = settings_.tags; i > 0; --i) {
    free_tags_.push_back(static_cast<std::uint16_t>(i - 1));
  }
  config_.set_observer(this);
  model_.attach(*this);
}

Endpoint::~Endpoint() {
  config_.set_observer(nullptr);
}

// ---- Requester ------------------------------------------------------------------------------------------

void Endpoint::start(DmaTransfer& transfer) {
  transfer.status = CompletionStatus::success;
  transfer.failed_address = 0;
  transfer.started = simulation_.now();
  transfer.issued = 0;
  transfer.confirmed = 0;
  transfer.outstanding = 0;
  transfer.queued = true;
  transfer.latency.clear();
  ++transfers_;
  active_.push_back(transfer);
  schedule_pump(max(simulation_.now(), link_free_));
}

void Endpoint::cancel_all() {
  active_.clear();
  starved_.clear();
  leaving_.clear();
  done_.clear();
  for (Tag& tag : tags_) {
    tag.transfer = nullptr;
  }
  transfers_ = 0;
  ++generation_;
}

void Endpoint::msix(unsigned vector) {
  if (!config_.bus_master_enabled()) {
    return;
  }
  TlpPtr tlp = simulation_.tlps.make();
  tlp->type = TlpType::MWr;
  tlp->address = settings_.msix_address;
  const std::uint32_t data = vector;
  tlp->store(std::as_bytes(std::span(&data, 1)));
  ++counters_.msix_sent;
  counters_.write_bytes_sent += tlp->length;
  transmit(std::move(tlp));
}

void Endpoint::schedule_pump(Picoseconds at) {
  if (at < pump_at_) {
    pump_at_ = at;
    simulation_.events.schedule(at, *this, pump_event);
  }
}

void Endpoint::on_event(std::uint64_t argument) {
  if (argument == leave_event) {
    while (!leaving_.empty() && leaving_.front()->finished <= simulation_.now()) {
      --transfers_;
      done_.push_back(*leaving_.pop_front());
    }
    deliver_done();
    return;
  }
  if (argument != pump_event) {
    TlpPtr tlp(reinterpret_cast<Tlp*>(static_cast<std::uintptr_t>(argument & ~arrived_bit)));
    if ((argument & arrived_bit) != 0) {
      deliver(std::move(tlp));
    } else {
      transmit(std::move(tlp));
    }
    return;
  }
  if (simulation_.now() >= pump_at_) {
    pump_at_ = Picoseconds::max();
  }
  pump();
}

void Endpoint::pump() {
  if (pumping_) {
    return;
  }
  pumping_ = true;
  std::uint64_t budget = bytes_per_event;
  for (;;) {
    if (!starved_.empty() && !free_tags_.empty()) {
      active_.push_front(*starved_.pop_front());
    }
    if (active_.empty()) {
      break;
    }
    if (simulation_.timed && link_free_ > simulation_.now() + issue_ahead) {
      schedule_pump(link_free_ - issue_again);
      break;
    }
    if (budget == 0) {
      schedule_pump(simulation_.now());
      break;
    }
    DmaTransfer& transfer = *active_.pop_front();  // `queued` stays set: nobody else may finish it meanwhile
    if (!all_issued(transfer) || transfer.length == 0) {
      const std::uint64_t generation = generation_;
      const std::uint64_t before = transfer.issued;
      if (!issue(transfer)) {
        starved_.push_back(transfer);  // the others go on: posted requests need no tag
        continue;
      }
      if (generation != generation_) {
        continue;  // cancelled from inside: the transfer is no longer ours
      }
      if (!simulation_.timed) {
        // Progress without bytes (a confirmation, an abort) costs as much as a page.
        const std::uint64_t moved = std::max(transfer.issued - before, page_bytes);
        budget -= std::min(budget, moved);
      }
    }
    transfer.queued = false;
    if (all_issued(transfer)) {
      maybe_finish(transfer);
    } else {
      transfer.queued = true;
      active_.push_back(transfer);
    }
  }
  pumping_ = false;
  deliver_done();
}

bool Endpoint::all_issued(const DmaTransfer& transfer) {
  return transfer.issued == transfer.length &&
         (transfer.kind == DmaTransfer::Kind::read || !transfer.confirm || transfer.confirmed == transfer.length);
}

bool Endpoint::issue(DmaTransfer& transfer) {
  if (!config_.bus_master_enabled() || transfer.length == 0 || transfer.buffer == nullptr ||
      transfer.address + (transfer.length - 1) < transfer.address) {
    // Nothing may leave the function, or there is nothing that could.
    if (transfer.status == CompletionStatus::success) {
      transfer.status = CompletionStatus::unsupported_request;
      transfer.failed_address = transfer.address + transfer.issued;
    }
    transfer.issued = transfer.confirmed = transfer.length;
    return true;
  }
  const std::uint64_t address = transfer.address + transfer.issued;
  const std::uint64_t left = transfer.length - transfer.issued;
  if (transfer.kind == DmaTransfer::Kind::read) {
    const std::uint32_t unit = simulation_.timed ? settings_.max_read_request : burst_bytes;
    const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, unit - (address & (unit - 1))));
    return issue_read(transfer, address, transfer.issued, length, false);
  }
  if (transfer.confirm) {
    // The end of the first page that has no confirmation yet, as an offset into the transfer.
    const std::uint64_t page_end =
        std::min(transfer.length, ((transfer.address + transfer.confirmed) | (page_bytes - 1)) + 1 - transfer.address);
    if (transfer.issued >= page_end) {
      return issue_read(transfer, (transfer.address + transfer.confirmed) & ~std::uint64_t{3}, page_end, 4, true);
    }
  }
  issue_write(transfer);
  return true;
}

void Endpoint::issue_write(DmaTransfer& transfer) {
  const std::uint64_t address = transfer.address + transfer.issued;
  const std::uint64_t left = transfer.length - transfer.issued;
  const std::uint32_t unit = simulation_.timed ? settings_.max_payload : burst_bytes;
  const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, unit - (address & (unit - 1))));
  TlpPtr tlp = simulation_.tlps.make();
  tlp->type = TlpType::MWr;
  tlp->at = transfer.at;
  tlp->attributes = transfer.attributes;
  tlp->address = address;
  const ByteEnables be = byte_enables(address, length);
  tlp->first_be = be.first;
  tlp->last_be = be.last;
  const std::span<const std::byte> bytes{transfer.buffer + transfer.issued, length};
  if (simulation_.timed) {
    tlp->store(bytes);
  } else {
    tlp->borrow(bytes);
    tlp->unit = settings_.max_payload;
    tlp->count = tlps_needed(address, length, settings_.max_payload);
  }
  transfer.issued += length;
  counters_.write_bytes_sent += length;
  transmit(std::move(tlp));
}

bool Endpoint::issue_read(DmaTransfer& transfer, std::uint64_t address, std::uint64_t offset, std::uint32_t length,
                          bool confirm) {
  if (free_tags_.empty()) {
    return false;
  }
  const std::uint16_t index = free_tags_.back();
  free_tags_.pop_back();
  tags_[index] = {&transfer, address, offset, length, 0, confirm, true};
  ++transfer.outstanding;
  TlpPtr tlp = simulation_.tlps.make();
  tlp->type = TlpType::MRd;
  tlp->at = transfer.at;
  tlp->attributes = transfer.attributes;
  tlp->address = address;
  tlp->length = length;
  tlp->tag = index;
  if (confirm) {
    // The offset is the end of the page that this read confirms.
    transfer.confirmed = offset;
    tlp->first_be = 0;
    tlp->last_be = 0;
  } else {
    transfer.issued += length;
    const ByteEnables be = byte_enables(address, length);
    tlp->first_be = be.first;
    tlp->last_be = be.last;
    counters_.read_bytes_requested += length;
    if (!simulation_.timed) {
      tlp->unit = settings_.max_read_request;
      tlp->count = tlps_needed(address, length, settings_.max_read_request);
    }
  }
  transmit(std::move(tlp));
  return true;
}

void Endpoint::transmit(TlpPtr tlp) {
  if (is_request(tlp->type)) {
    tlp->requester = bdf_;
  }
  if (egress_ == nullptr) {
    return;
  }
  if (!simulation_.timed) {
    egress_->receive(std::move(tlp), {});
    return;
  }
  const Picoseconds now = simulation_.now();
  const Picoseconds at = max(now, link_free_);
  if (is_request(tlp->type)) {
    tlp->created = at;
  } else if (at != now) {
    tlp->latency.add(id_).queue += static_cast<std::uint32_t>((at - now).count);
  }
  link_free_ = now + egress_->receive(std::move(tlp), at - now);
}

void Endpoint::maybe_finish(DmaTransfer& transfer) {
  if (transfer.queued || transfer.outstanding != 0 || !all_issued(transfer)) {
    return;
  }
  transfer.finished = simulation_.now();
  if (transfer.kind == DmaTransfer::Kind::write && !transfer.confirm && transfer.finished < link_free_ &&
      transfer.status == CompletionStatus::success) {
    transfer.finished = link_free_;
    leaving_.push_back(transfer);
    simulation_.events.schedule(link_free_, *this, leave_event);
    return;
  }
  --transfers_;
  done_.push_back(transfer);
}

// Listeners are called with no work of the endpoint on the stack, so that they may start, cancel and reset.
void Endpoint::deliver_done() {
  if (pumping_) {
    return;
  }
  while (DmaTransfer* transfer = done_.pop_front()) {
    if (transfer->listener != nullptr) {
      transfer->listener->on_dma_done(*transfer);
    }
  }
}

void Endpoint::handle_completion(Tlp& tlp) {
  if (tlp.requester != bdf_ || tlp.tag >= tags_.size() || !tags_[tlp.tag].in_use) {
    ++counters_.unexpected_completions;
    return;
  }
  Tag& tag = tags_[tlp.tag];
  DmaTransfer* transfer = tag.transfer;
  const std::uint32_t position = tag.length - std::min(tlp.byte_count, tag.length);
  if (tlp.type == TlpType::CplD && tlp.status == CompletionStatus::success) {
    const std::uint32_t bytes = std::min(tlp.length, tag.length - position);
    tag.received += bytes;
    if (!tag.confirm) {
      counters_.completion_bytes_received += bytes;
      if (transfer != nullptr && bytes > 0 && tlp.data != nullptr) {
        std::memcpy(transfer->buffer + tag.offset + position, tlp.data, bytes);
      }
    }
  } else {
    counters_.errors += tlp.count;
    if (transfer != nullptr) {
      if (transfer->status == CompletionStatus::success) {
        // A Cpl without data and without an error status answers no memory read (§2.3.2).
        transfer->status = tlp.status == CompletionStatus::success ? CompletionStatus::unsupported_request : tlp.status;
        transfer->failed_address = tag.address + position;
      }
      transfer->issued = transfer->confirmed = transfer->length;
    }
    // It ends the reads that it answers: all there is, but for a burst of reads that met different fates.
    const std::uint64_t mask = settings_.max_read_request - 1;
    const std::uint64_t covered =
        std::uint64_t{tlp.count} * settings_.max_read_request - ((tag.address + position) & mask);
    tag.received += static_cast<std::uint32_t>(std::min<std::uint64_t>(tag.length - position, covered));
  }
  const bool last = tag.received >= tag.length;
  if (transfer == nullptr) {
    ++counters_.unexpected_completions;
  }
  if (!last) {
    return;
  }
  tag = {};
  free_tags_.push_back(tlp.tag);
  if (transfer != nullptr) {
    --transfer->outstanding;
    if (simulation_.timed && transfer->outstanding == 0 && all_issued(*transfer)) {
      transfer->latency.copy_from(tlp.latency);
    }
    maybe_finish(*transfer);
  }
  if (!pumping_ && (!active_.empty() || !starved_.empty())) {
    schedule_pump(simulation_.now());
  }
}

// ---- Completer ------------------------------------------------------------------------------------------

Picoseconds Endpoint::receive(TlpPtr tlp, Picoseconds delay) {
  if (simulation_.timed && delay != Picoseconds{}) {
    const std::uint64_t argument = reinterpret_cast<std::uintptr_t>(tlp.release()) | arrived_bit;
    simulation_.events.schedule(simulation_.now() + delay, *this, argument);
    return delay;
  }
  deliver(std::move(tlp));
  return {};
}

void Endpoint::deliver(TlpPtr tlp) {
  if (is_completion(tlp->type)) {
    handle_completion(*tlp);
    tlp.reset();
    deliver_done();
  } else {
    handle_request(*tlp);
  }
}

void Endpoint::handle_request(const Tlp& tlp) {
  if (is_memory(tlp.type)) {
    if (tlp.count > 1 && !bars_.find(tlp.address, tlp.length)) {
      // Some of the burst's TLPs may hit a BAR.
      for (std::uint32_t done = 0; done < tlp.length;) {
        const std::uint32_t one = completion_chunk(tlp.address + done, tlp.length - done, tlp.unit);
        handle_request(*request_part(simulation_, tlp, done, one));
        done += one;
      }
    } else if (tlp.type == TlpType::MWr) {
      handle_write(tlp);
    } else {
      handle_read(tlp);
    }
  } else if (is_config(tlp.type)) {
    handle_config(tlp);
  }
  // Messages to an endpoint: none is defined for these functions yet.
}

void Endpoint::handle_write(const Tlp& tlp) {
  const auto hit = bars_.find(tlp.address, std::max<std::uint32_t>(tlp.length, 1));
  if (!hit || tlp.data == nullptr || tlp.length == 0) {
    counters_.errors += tlp.count;
    return;  // posted: dropped
  }
  counters_.write_bytes_received += tlp.length;
  const std::span<std::byte> memory = model_.bar_memory(hit->bar, hit->offset, tlp.length);
  if (!memory.empty()) {
    std::memmove(memory.data(), tlp.data, std::min<std::size_t>(memory.size(), tlp.length));
  } else {
    model_.bar_write(hit->bar, hit->offset, tlp.payload());
  }
}

void Endpoint::handle_config(const Tlp& tlp) {
  if (tlp.type == TlpType::CfgRd1 || tlp.type == TlpType::CfgWr1 || tlp.completer != bdf_) {
    respond(make_completion(simulation_, tlp, bdf_, CompletionStatus::unsupported_request), {});
    return;
  }
  if (tlp.type == TlpType::CfgRd0) {
    const std::uint32_t value = config_.read_dword(static_cast<std::uint32_t>(tlp.address));
    TlpPtr completion = make_data_completion(simulation_, tlp, bdf_, 0, sizeof(value), sizeof(value));
    completion->store(std::as_bytes(std::span(&value, 1)));
    respond(std::move(completion), {});
    return;
  }
  std::uint32_t value = 0;
  if (!tlp.payload().empty()) {
    std::memcpy(&value, tlp.data, std::min<std::size_t>(tlp.length, sizeof(value)));
  }
  config_.write_dword(static_cast<std::uint32_t>(tlp.address), value, tlp.first_be);
  respond(make_completion(simulation_, tlp, bdf_, CompletionStatus::success), {});
}

void Endpoint::handle_read(const Tlp& tlp) {
  const auto hit = bars_.find(tlp.address, std::max<std::uint32_t>(tlp.length, 1));
  if (!hit || tlp.length == 0) {
    counters_.errors += tlp.count;
    respond(make_completion(simulation_, tlp, bdf_, CompletionStatus::unsupported_request), {});
    return;
  }
  std::span<const std::byte> bytes;
  static constexpr std::array<std::byte, 4> nothing{};
  if (is_zero_length_read(tlp)) {
    bytes = std::span(nothing).first(std::min<std::size_t>(tlp.length, nothing.size()));
  } else {
    bytes = model_.bar_memory(hit->bar, hit->offset, tlp.length);
    if (bytes.empty()) {
      if (read_buffer_.size() < tlp.length) {
        read_buffer_.resize(tlp.length);
      }
      const std::span<std::byte> into{read_buffer_.data(), tlp.length};
      model_.bar_read(hit->bar, hit->offset, into);
      if (model_.read_status() != CompletionStatus::success) {
        ++counters_.errors;
        respond(make_completion(simulation_, tlp, bdf_, model_.read_status()),
                simulation_.timed ? model_.access_time(hit->bar) : Picoseconds{});
        return;
      }
      bytes = into;
    }
  }
  const Picoseconds access = simulation_.timed ? model_.access_time(hit->bar) : Picoseconds{};
  if (!is_zero_length_read(tlp)) {
    counters_.completion_bytes_sent += bytes.size();
  }
  const auto length = static_cast<std::uint32_t>(bytes.size());
  if (!simulation_.timed) {
    TlpPtr completion = make_data_completion(simulation_, tlp, bdf_, 0, length, settings_.completion_unit);
    completion->borrow(bytes);
    respond(std::move(completion), {});
    return;
  }
  for (std::uint32_t done = 0; done < length;) {
    const std::uint32_t chunk = completion_chunk(tlp.address + done, length - done, settings_.completion_unit);
    TlpPtr completion = make_data_completion(simulation_, tlp, bdf_, done, chunk, settings_.completion_unit);
    completion->store(bytes.subspan(done, chunk));
    completion->latency.add(id_).process += static_cast<std::uint32_t>(access.count);
    respond(std::move(completion), access);
    done += chunk;
  }
}

void Endpoint::respond(TlpPtr completion, Picoseconds after) {
  if (after == Picoseconds{}) {
    transmit(std::move(completion));
    return;
  }
  simulation_.events.schedule(simulation_.now() + after, *this, reinterpret_cast<std::uintptr_t>(completion.release()));
}

void Endpoint::on_command(std::uint16_t /*before*/, std::uint16_t /*after*/) {
  bars_.refresh();
}
void Endpoint::on_bars() {
  bars_.refresh();
}
void Endpoint::on_power_state(PowerState /*before*/, PowerState /*after*/) {
  bars_.refresh();
}

void Endpoint::on_reset(ResetKind /*kind*/) {
  bars_.refresh();
  cancel_all();
  model_.reset();
}

}  // namespace orrery::pcie
