// The CPU's half of the root complex: accesses to devices, their tags and their completions.
#include <algorithm>
#include <cstring>
#include <limits>

#include "pcie/completion.h"
#include "pcie/root_complex_parts.h"

namespace orrery::pcie {

namespace {
// CPUs access devices by at most a cache line.
constexpr std::uint32_t cpu_access_bytes = 64;
}  // namespace

void RootComplex::start(HostRequest& request) {
  request.done = false;
  request.status = CompletionStatus::success;
  request.started = simulation_.now();
  request.finished = request.started;
  request.outstanding = 0;
  request.issued = 0;
  request.next = nullptr;
  request.latency.clear();
  int port = -1;
  if (is_config(request.type)) {
    port = port_of(request.target);
  } else if (const auto* window = windows_.find(request.address);
             window != nullptr && request.buffer.size() <= window->start + window->size - request.address) {
    port = static_cast<int>(window->value);
  }
  if (port < 0 || ports_[static_cast<unsigned>(port)]->egress == nullptr || request.buffer.empty() ||
      request.buffer.size() > std::numeric_limits<std::uint32_t>::max()) {
    request.status = CompletionStatus::unsupported_request;
    request.done = true;
    return;
  }
  request.port = static_cast<unsigned>(port);
  if (request.type == TlpType::MWr) {
    request.done = true;
    while (request.issued < request.buffer.size()) {
      issue_host(request, 0);
    }
    return;
  }
  if (pending_->first == nullptr) {
    pending_->first = &request;
  } else {
    pending_->last->next = &request;
  }
  pending_->last = &request;
  issue_waiting();
}

// Asks for what waits, as long as there are tags. In functional mode a completion comes back in the very call
// that sends the request.
void RootComplex::issue_waiting() {
  if (pending_->issuing) {
    return;
  }
  pending_->issuing = true;
  while (HostRequest* request = pending_->first) {
    const auto tag =
        std::find_if(pending_->tags.begin(), pending_->tags.end(), [](const Pending::HostTag& t) { return !t.in_use; });
    if (tag == pending_->tags.end()) {
      break;
    }
    *tag = {request, request->issued, 0, true};
    issue_host(*request, static_cast<unsigned>(tag - pending_->tags.begin()));
  }
  pending_->issuing = false;
}

// Sends the next TLP of a request; `tag` has been taken for it (posted: any).
void RootComplex::issue_host(HostRequest& request, unsigned tag) {
  const Port& out = *ports_[request.port];
  const bool config = is_config(request.type);
  const std::uint32_t offset = request.issued;
  const auto size = static_cast<std::uint32_t>(request.buffer.size());
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
  request.issued += chunk;
  if (request.type != TlpType::MWr) {
    pending_->tags[tag].length = chunk;
    tlp->tag = static_cast<std::uint16_t>(tag);
    ++request.outstanding;
    if (request.issued == size) {
      pending_->first = request.next;
    }
  }
  Picoseconds delay;
  if (simulation_.timed) {
    delay = settings_.latency;
    if (out.socket != request.socket) {
      delay += settings_.socket_link;
    }
    tlp->latency.add(id_).process += static_cast<std::uint32_t>(delay.count);
  }
  send(request.port, std::move(tlp), delay);
}

void RootComplex::cancel(HostRequest& request) {
  for (Pending::HostTag& tag : pending_->tags) {
    if (tag.request == &request) {
      tag.request = nullptr;
    }
  }
  HostRequest* before = nullptr;
  for (HostRequest* at = pending_->first; at != nullptr; before = at, at = at->next) {
    if (at == &request) {
      (before == nullptr ? pending_->first : before->next) = at->next;
      if (pending_->last == at) {
        pending_->last = before;
      }
      break;
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
    if (request != nullptr && bytes > 0 && tlp.data != nullptr) {
      std::memcpy(request->buffer.data() + tag.offset + done, tlp.data, bytes);
    }
  } else if (request != nullptr && request->status == CompletionStatus::success) {
    // A completion without data answers a configuration write; for a read it is an error whatever it says.
    request->status = tlp.status == CompletionStatus::success && request->type != TlpType::CfgWr1
                          ? CompletionStatus::unsupported_request
                          : tlp.status;
  }
  if (!last) {
    return;
  }
  tag = {};
  if (request == nullptr) {
    ++counters_.unexpected_completions;
  } else {
    --request->outstanding;
    if (simulation_.timed) {
      request->latency.copy_from(tlp.latency);
    }
    if (request->outstanding == 0 && request->issued == request->buffer.size()) {
      request->done = true;
      request->finished = simulation_.now();
    }
  }
  issue_waiting();
}

}  // namespace orrery::pcie
