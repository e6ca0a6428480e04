#include "pcie/root_complex.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "common/error.h"
#include "pcie/completion.h"

namespace orrery::pcie {

namespace {
// What an event of the root complex is about; kept in Tlp::cookie with the port's index.
constexpr std::uint64_t event_inbound = 0;
constexpr std::uint64_t event_outbound = std::uint64_t{1} << 32;
constexpr std::uint64_t port_mask = 0xffff'ffff;

// CPUs access devices by at most a cache line.
constexpr std::uint32_t cpu_access_bytes = 64;

bool in_interrupt_window(const Tlp& tlp) {
  return tlp.type == TlpType::MWr && tlp.at == AddressType::untranslated &&
         tlp.address - interrupt_window_start < interrupt_window_size;
}
}  // namespace

struct RootComplex::Port final : TlpSink {
  Port(RootComplex& owner_complex, unsigned port_index) : owner(owner_complex), index(port_index) {}
  Picoseconds receive(TlpPtr tlp, Picoseconds delay) override { return owner.receive(index, std::move(tlp), delay); }

  RootComplex& owner;
  unsigned index;
  unsigned socket = 0;
  BusRange buses;
  AcsControl acs;
  TlpSink* egress = nullptr;
};

struct RootComplex::Pending {
  // A tag of a CPU request: which part of its buffer the completion is for.
  struct HostTag {
    HostRequest* request = nullptr;
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    bool in_use = false;  // stays set after cancel(), until the completion is back
  };
  struct Remote {
    TlpPtr request;
    TlpPtr completion;  // reads: where the bytes go
    unsigned port = 0;
  };
  std::array<HostTag, 64> tags;
  std::vector<Remote> remote;
  std::vector<std::size_t> remote_free;
};

RootComplex::RootComplex(Simulation& simulation, const std::string& name, const RootComplexSettings& settings,
                         Iommu& iommu, HostMemory& memory, InterruptController& interrupts)
    : simulation_(simulation),
      settings_(settings),
      iommu_(iommu),
      memory_(memory),
      interrupts_(interrupts),
      id_(simulation.names.add(name)),
      memory_id_(simulation.names.add(name + ".memory")),
      pending_(std::make_unique<Pending>()) {
  port_of_bus_.fill(-1);
}

RootComplex::~RootComplex() = default;

unsigned RootComplex::add_port(const std::string& name, unsigned socket, BusRange buses, const AcsControl& acs) {
  const auto index = static_cast<unsigned>(ports_.size());
  auto port = std::make_unique<Port>(*this, index);
  port->socket = socket;
  port->buses = buses;
  port->acs = acs;
  for (unsigned bus = buses.secondary; bus <= buses.subordinate; ++bus) {
    if (bus >= port_of_bus_.size() || port_of_bus_[bus] >= 0) {
      throw Error(fmt::format("root port {}: bus {} is taken or above 255", name, bus), "give every port buses of its own");
    }
    port_of_bus_[bus] = static_cast<std::int16_t>(index);
  }
  ports_.push_back(std::move(port));
  return index;
}

TlpSink& RootComplex::ingress(unsigned port) { return *ports_.at(port); }
void RootComplex::connect(unsigned port, TlpSink& egress) { ports_.at(port)->egress = &egress; }

bool RootComplex::add_window(unsigned port, std::uint64_t start, std::uint64_t size) {
  return windows_.insert(start, size, port);
}
void RootComplex::clear_windows() { windows_.clear(); }

Picoseconds RootComplex::receive(unsigned port, TlpPtr tlp, Picoseconds delay) {
  if (!simulation_.timed) {
    handle(port, std::move(tlp));
    return {};
  }
  tlp->latency.add(id_).process += static_cast<std::uint32_t>(settings_.latency.count);
  tlp->cookie = event_inbound | port;
  simulation_.events.schedule(simulation_.now() + delay + settings_.latency, *this,
                              reinterpret_cast<std::uintptr_t>(tlp.release()));
  return delay;
}

void RootComplex::on_event(std::uint64_t argument) {
  TlpPtr tlp(reinterpret_cast<Tlp*>(static_cast<std::uintptr_t>(argument)));
  const auto port = static_cast<unsigned>(tlp->cookie & port_mask);
  if ((tlp->cookie & ~port_mask) == event_outbound) {
    ports_[port]->egress->receive(std::move(tlp), {});
  } else {
    handle(port, std::move(tlp));
  }
}

void RootComplex::send(unsigned port, TlpPtr tlp, Picoseconds delay) {
  Port& out = *ports_[port];
  if (out.egress == nullptr) {
    fail(port, *tlp, CompletionStatus::unsupported_request);
    return;
  }
  if (!simulation_.timed || delay == Picoseconds{}) {
    out.egress->receive(std::move(tlp), {});
    return;
  }
  tlp->cookie = event_outbound | port;
  simulation_.events.schedule(simulation_.now() + delay, *this, reinterpret_cast<std::uintptr_t>(tlp.release()));
}

void RootComplex::handle(unsigned port, TlpPtr tlp) {
  if (is_completion(tlp->type)) {
    handle_completion(std::move(tlp));
  } else if (is_memory(tlp->type)) {
    handle_memory(port, std::move(tlp));
  } else if (!is_message(tlp->type)) {
    fail(port, *tlp, CompletionStatus::unsupported_request);
  }
  // Messages end here: error and power management messages get their consumers with AER and PRI.
}

void RootComplex::handle_completion(TlpPtr tlp) {
  if (tlp->requester == bdf()) {
    complete_host_read(*tlp);
    return;
  }
  const int port = port_of(tlp->requester);
  if (port < 0) {
    ++counters_.unexpected_completions;
    return;
  }
  send(static_cast<unsigned>(port), std::move(tlp), {});
}

void RootComplex::handle_memory(unsigned port, TlpPtr tlp) {
  if (in_interrupt_window(*tlp)) {
    counters_.interrupts += 1;
    std::uint32_t data = 0;
    std::memcpy(&data, tlp->data, std::min<std::size_t>(tlp->length, sizeof(data)));
    interrupts_.interrupt(tlp->requester, tlp->address, data);
    return;
  }
  if (tlp->at == AddressType::translation_request) {
    counters_.unsupported += 1;
    fail(port, *tlp, CompletionStatus::unsupported_request);
    return;
  }
  if (tlp->at == AddressType::translated && !translated_allowed_.test(tlp->requester.value)) {
    counters_.translated_blocked += tlp->count;
    fail(port, *tlp, CompletionStatus::completer_abort);
    return;
  }

  const DmaDirection direction = tlp->type == TlpType::MWr ? DmaDirection::write : DmaDirection::read;
  const bool zero_length = is_zero_length_read(*tlp);
  const std::uint32_t total = tlp->length;
  std::uint32_t offset = 0;
  while (offset < total) {
    // The single TLP of the burst that holds this offset: faults count per TLP, as on a wire.
    const std::uint64_t bus_address = tlp->address + offset;
    const std::uint32_t one = tlp->count == 1 ? total - offset : completion_chunk(bus_address, total - offset, tlp->unit);
    Hpa address{bus_address};
    std::uint64_t bytes = total - offset;
    if (tlp->at == AddressType::untranslated) {
      const TranslationRequest query{tlp->requester, Iova{bus_address}, bytes, direction, simulation_.now()};
      Translation translation = zero_length ? iommu_.probe(query) : iommu_.translate(query);
      if (zero_length && !translation.ok()) {
        // A zero-length read reads nothing: it may go where only writes may (VT-d's ZLR capability).
        TranslationRequest as_write = query;
        as_write.direction = DmaDirection::write;
        translation = translation.fault == IommuFaultReason::read_permission ? iommu_.probe(as_write)
                                                                             : iommu_.translate(query);
      }
      if (!translation.ok()) {
        ++counters_.translation_faults;
        if (direction == DmaDirection::read) {
          TlpPtr error = make_completion(simulation_, *tlp, bdf(), CompletionStatus::unsupported_request);
          error->address = bus_address;
          error->byte_count = total - offset;
          send(port, std::move(error), {});
          return;
        }
        offset += one;
        continue;
      }
      address = translation.address;
      bytes = translation.bytes;
    }

    if (const auto* window = windows_.find(address.value)) {
      const std::uint64_t room = window->start + window->size - address.value;
      const auto piece = static_cast<std::uint32_t>(std::min({bytes, room, std::uint64_t{total - offset}}));
      const unsigned target = window->value;
      if (!settings_.peer_to_peer) {
        counters_.unsupported += 1;
        fail(port, *tlp, CompletionStatus::unsupported_request);
        return;
      }
      if (offset == 0 && piece == total) {
        tlp->address = address.value;
        to_peer(port, target, std::move(tlp));
        return;
      }
      TlpPtr part = simulation_.tlps.make();
      part->type = tlp->type;
      part->at = tlp->at;
      part->attributes = tlp->attributes;
      part->requester = tlp->requester;
      part->tag = tlp->tag;
      part->address = address.value;
      part->created = tlp->created;
      if (tlp->has_payload()) {
        part->borrow({tlp->data + offset, piece});
      } else {
        // A part of a read burst would be completed with byte counts of its own; only whole bursts go to a
        // peer's BAR, and mappings of a BAR are contiguous.
        counters_.unsupported += 1;
        fail(port, *tlp, CompletionStatus::unsupported_request);
        return;
      }
      part->unit = tlp->unit;
      part->count = tlp->count == 1 ? 1 : tlps_needed(part->address, piece, tlp->unit);
      to_peer(port, target, std::move(part));
      offset += piece;
      continue;
    }

    const HostMemory::Window window = memory_.find(address);
    if (window.kind == HostMemory::Kind::none) {
      counters_.unsupported += 1;
      if (direction == DmaDirection::read) {
        fail(port, *tlp, CompletionStatus::unsupported_request);
        return;
      }
      offset += one;
      continue;
    }
    if (window.kind == HostMemory::Kind::remote) {
      if (offset == 0 && std::min(bytes, window.contiguous) >= total) {
        remote_access(port, std::move(tlp), address);
        return;
      }
      counters_.unsupported += 1;
      fail(port, *tlp, CompletionStatus::unsupported_request);
      return;
    }
    const auto piece =
        static_cast<std::uint32_t>(std::min({bytes, window.contiguous, std::uint64_t{total - offset}}));
    if (direction == DmaDirection::write) {
      counters_.memory_writes += tlp->count == 1 ? 1 : tlps_needed(bus_address, piece, tlp->unit);
      std::memcpy(window.bytes, tlp->data + offset, piece);
      memory_.device_wrote(address, {window.bytes, piece});
    } else {
      counters_.memory_reads += tlp->count == 1 ? 1 : tlps_needed(bus_address, piece, tlp->unit);
      if (!zero_length) {
        memory_.device_reads(address, {window.bytes, piece});
      }
      read_direct(port, *tlp, window, offset, piece);
    }
    offset += piece;
  }
}

void RootComplex::read_direct(unsigned port, const Tlp& request, const HostMemory::Window& window,
                              std::uint32_t offset, std::uint32_t length) {
  static constexpr std::array<std::byte, 4> nothing{};
  const std::byte* bytes = is_zero_length_read(request) ? nothing.data() : window.bytes;
  if (!simulation_.timed) {
    TlpPtr completion =
        make_data_completion(simulation_, request, bdf(), offset, length, settings_.completion_unit);
    completion->borrow({bytes, length});
    send(port, std::move(completion), {});
    return;
  }
  const Picoseconds access = memory_.access_time(window.node, ports_[port]->socket);
  for (std::uint32_t done = 0; done < length;) {
    const std::uint32_t chunk =
        completion_chunk(request.address + offset + done, length - done, settings_.completion_unit);
    TlpPtr completion =
        make_data_completion(simulation_, request, bdf(), offset + done, chunk, settings_.completion_unit);
    completion->store({bytes + done, chunk});
    completion->latency.add(memory_id_).process += static_cast<std::uint32_t>(access.count);
    send(port, std::move(completion), access);
    done += chunk;
  }
}

void RootComplex::to_peer(unsigned port, unsigned target, TlpPtr tlp) {
  counters_.peer_to_peer += tlp->count;
  counters_.peer_to_peer_bytes += tlp->length;
  Picoseconds delay;
  if (simulation_.timed && ports_[port]->socket != ports_[target]->socket) {
    delay = settings_.socket_link;
    tlp->latency.add(id_).process += static_cast<std::uint32_t>(delay.count);
  }
  send(target, std::move(tlp), delay);
}

void RootComplex::remote_access(unsigned port, TlpPtr tlp, Hpa address) {
  std::size_t slot = pending_->remote.size();
  if (pending_->remote_free.empty()) {
    pending_->remote.emplace_back();
  } else {
    slot = pending_->remote_free.back();
    pending_->remote_free.pop_back();
  }
  Pending::Remote& remote = pending_->remote[slot];
  remote.port = port;
  if (tlp->type == TlpType::MRd) {
    counters_.memory_reads += tlp->count;
    remote.completion =
        make_data_completion(simulation_, *tlp, bdf(), 0, tlp->length, settings_.completion_unit);
    const std::span<std::byte> into = remote.completion->reserve(tlp->length);
    remote.request = std::move(tlp);
    memory_.read_remote(address, into, *this, slot);
  } else {
    counters_.memory_writes += tlp->count;
    if (tlp->borrowed()) {
      tlp->store(tlp->payload());  // the sender's bytes don't outlive this call
    }
    const std::span<const std::byte> from = tlp->payload();
    remote.request = std::move(tlp);
    memory_.write_remote(address, from, *this, slot);
  }
}

void RootComplex::on_host_memory(std::uint64_t context, bool ok) {
  Pending::Remote& slot = pending_->remote[context];
  const unsigned port = slot.port;
  const TlpPtr request = std::move(slot.request);
  TlpPtr completion = std::move(slot.completion);
  pending_->remote_free.push_back(context);
  if (completion == nullptr) {
    return;
  }
  if (!ok) {
    fail(port, *request, CompletionStatus::completer_abort);
    return;
  }
  if (!simulation_.timed) {
    send(port, std::move(completion), {});
    return;
  }
  const std::span<const std::byte> bytes = completion->payload();
  for (std::uint32_t done = 0; done < bytes.size();) {
    const std::uint32_t chunk = completion_chunk(
        request->address + done, static_cast<std::uint32_t>(bytes.size()) - done, settings_.completion_unit);
    TlpPtr part = make_data_completion(simulation_, *request, bdf(), done, chunk, settings_.completion_unit);
    part->store(bytes.subspan(done, chunk));
    send(port, std::move(part), {});
    done += chunk;
  }
}

void RootComplex::fail(unsigned port, const Tlp& request, CompletionStatus status) {
  if (is_posted(request.type) || is_completion(request.type)) {
    return;
  }
  TlpPtr completion = make_completion(simulation_, request, bdf(), status);
  if (request.requester == bdf()) {
    complete_host_read(*completion);
  } else {
    send(port, std::move(completion), {});
  }
}

void RootComplex::start(HostRequest& request) {
  request.done = false;
  request.status = CompletionStatus::success;
  request.started = simulation_.now();
  request.outstanding = 0;
  request.latency.clear();
  const bool config = is_config(request.type);
  int port = -1;
  if (config) {
    port = port_of(request.target);
  } else if (const auto* window = windows_.find(request.address);
             window != nullptr && request.buffer.size() <= window->start + window->size - request.address) {
    port = static_cast<int>(window->value);
  }
  if (port < 0 || ports_[static_cast<unsigned>(port)]->egress == nullptr) {
    request.status = CompletionStatus::unsupported_request;
    request.done = true;
    request.finished = simulation_.now();
    return;
  }
  const Port& out = *ports_[static_cast<unsigned>(port)];
  const bool posted = request.type == TlpType::MWr;
  std::uint32_t offset = 0;
  const auto size = static_cast<std::uint32_t>(request.buffer.size());
  while (offset < size) {
    const std::uint32_t chunk =
        config ? size : completion_chunk(request.address + offset, size - offset, cpu_access_bytes);
    TlpPtr tlp = simulation_.tlps.make();
    tlp->type = request.type;
    tlp->address = request.address + offset;
    tlp->requester = bdf();
    tlp->created = simulation_.now();
    if (config) {
      tlp->completer = request.target;
      tlp->first_be = request.byte_enables;
      tlp->last_be = 0;
      if (request.target.bus() == out.buses.secondary) {
        tlp->type = request.type == TlpType::CfgRd1 ? TlpType::CfgRd0 : TlpType::CfgWr0;
      }
    } else {
      const ByteEnables be = byte_enables(tlp->address, chunk);
      tlp->first_be = be.first;
      tlp->last_be = be.last;
    }
    if (tlp->has_payload()) {
      tlp->store({request.buffer.data() + offset, chunk});
    } else {
      tlp->length = chunk;
    }
    if (!posted) {
      const auto tag = std::find_if(pending_->tags.begin(), pending_->tags.end(),
                                    [](const Pending::HostTag& t) { return !t.in_use; });
      if (tag == pending_->tags.end()) {
        request.status = CompletionStatus::retry;
        request.done = request.outstanding == 0;
        break;
      }
      *tag = {&request, offset, chunk, true};
      tlp->tag = static_cast<std::uint16_t>(tag - pending_->tags.begin());
      ++request.outstanding;
    }
    Picoseconds delay;
    if (simulation_.timed) {
      delay = settings_.latency;
      if (out.socket != request.socket) {
        delay += settings_.socket_link;
      }
      tlp->latency.add(id_).process += static_cast<std::uint32_t>(delay.count);
    }
    offset += chunk;
    if (posted && offset == size) {
      request.done = true;
      request.finished = simulation_.now();
    }
    send(static_cast<unsigned>(port), std::move(tlp), delay);
  }
}

void RootComplex::cancel(HostRequest& request) {
  for (Pending::HostTag& tag : pending_->tags) {
    if (tag.request == &request) {
      tag.request = nullptr;
    }
  }
}

void RootComplex::complete_host_read(Tlp& tlp) {
  if (tlp.tag >= pending_->tags.size() || !pending_->tags[tlp.tag].in_use) {
    ++counters_.unexpected_completions;
    return;
  }
  Pending::HostTag& tag = pending_->tags[tlp.tag];
  HostRequest* request = tag.request;
  bool last = true;
  if (tlp.type == TlpType::CplD && tlp.status == CompletionStatus::success) {
    const std::uint32_t done = tag.length - std::min(tlp.byte_count, tag.length);
    const std::uint32_t bytes = std::min(tlp.length, tag.length - done);
    last = done + bytes == tag.length;
    if (request != nullptr && bytes > 0) {
      std::memcpy(request->buffer.data() + tag.offset + done, tlp.data, bytes);
    }
  } else if (request != nullptr && tlp.status != CompletionStatus::success) {
    request->status = tlp.status;
  }
  if (!last) {
    return;
  }
  tag = {};
  if (request == nullptr) {
    return;
  }
  --request->outstanding;
  if (simulation_.timed) {
    request->latency.copy_from(tlp.latency);
  }
  if (request->outstanding == 0) {
    request->done = true;
    request->finished = simulation_.now();
  }
}

}  // namespace orrery::pcie
