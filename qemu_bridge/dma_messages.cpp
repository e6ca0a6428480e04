#include "qemu_bridge/dma_messages.h"

#include <algorithm>

namespace orrery::bridge {

DmaMessages::~DmaMessages() {
  close();
}

void DmaMessages::open(std::uint64_t transfer) {
  open_ = true;
  transfer_ = std::min<std::uint64_t>(transfer, max_transfer);
}

void DmaMessages::close() {
  open_ = false;
  messages_.fill({});
  in_flight_ = 0;
  // A callback may ask for more, which fails in turn; only what is there now is promised an answer here,
  // so that a requester that never gives up can't hold us.
  const std::uint64_t end = first_ + requests_.size();
  for (std::uint64_t sequence = first_; sequence < end; ++sequence) {
    // finish() drops requests from the front of the queue, this one's finished successors among them.
    if (sequence < first_ || at(sequence).finished) {
      continue;
    }
    Request& request = at(sequence);
    request.failed = true;
    request.in_flight = 0;
    finish(sequence);
  }
}

void DmaMessages::read(Iova address, std::span<std::byte> into, Done done, void* context) {
  Request request;
  request.address = address;
  request.into = into.data();
  request.size = into.size();
  request.done = done;
  request.context = context;
  submit(request);
}

void DmaMessages::write(Iova address, std::span<const std::byte> from, Done done, void* context) {
  Request request;
  request.write = true;
  request.address = address;
  request.from = from.data();
  request.size = from.size();
  request.done = done;
  request.context = context;
  submit(request);
}

void DmaMessages::submit(const Request& request) {
  requests_.push_back(request);
  Request& queued = requests_.back();
  if (!open_ || request.size > max_transfer ||
      (request.size != 0 && !range_is_valid(request.address.value, request.size))) {
    queued.failed = true;
  }
  if (ended(queued)) {
    defer();
    return;
  }
  issue();
}

void DmaMessages::defer() {
  deferred_ = true;
  host_.call_soon();
}

void DmaMessages::issue() {
  while (open_ && next_issue_ < first_ + requests_.size() && in_flight_ < window) {
    Request& request = at(next_issue_);
    if (request.failed || request.issued == request.size) {
      ++next_issue_;
    } else if (!send_next(next_issue_, request)) {
      request.failed = true;
      if (request.in_flight == 0) {
        defer();
      }
    }
  }
}

bool DmaMessages::send_next(std::uint64_t sequence, Request& request) {
  const std::uint64_t size = std::min(request.size - request.issued, transfer_);
  const Iova address = request.address + request.issued;
  // Asked anew for each message: the mapping may have gone since the request was made.
  if (!host_.may_access(address, size, request.write)) {
    return false;
  }
  const auto slot = std::find_if(messages_.begin(), messages_.end(), [](const Message& m) { return !m.used; });
  const auto command = request.write ? wire::Command::dma_write : wire::Command::dma_read;
  std::array<std::byte, sizeof(wire::Header) + sizeof(wire::DmaAccess)> head;
  const std::uint64_t body = request.write ? size : 0;
  store(std::span(head), command_header(next_id_, command, sizeof(wire::DmaAccess) + body));
  store(std::span(head).subspan(sizeof(wire::Header)), wire::DmaAccess{address.value, size});
  if (!host_.send_command(head, {request.from == nullptr ? nullptr : request.from + request.issued, body})) {
    return false;
  }
  *slot = {true, next_id_, sequence, request.issued, size};
  ++next_id_;
  ++in_flight_;
  ++request.in_flight;
  request.issued += size;
  ++(request.write ? counters_.dma_writes : counters_.dma_reads);
  return true;
}

bool DmaMessages::take_reply(const wire::Header& header, std::span<const std::byte> payload) {
  const auto slot = std::find_if(messages_.begin(), messages_.end(), [&](const Message& m) {
    return m.used && m.id == header.message_id &&
           header.command ==
               static_cast<std::uint16_t>(at(m.request).write ? wire::Command::dma_write : wire::Command::dma_read);
  });
  if (slot == messages_.end()) {
    return false;
  }
  const Message message = *slot;
  *slot = {};
  --in_flight_;
  Request& request = at(message.request);
  --request.in_flight;
  const bool error = (header.flags & wire::flag_error) != 0;
  if (error) {
    request.failed = true;
  } else if (!request.write) {
    const bool whole = payload.size() == sizeof(wire::DmaAccess) + message.size;
    if (whole && load<wire::DmaAccess>(payload).count == message.size) {
      std::memcpy(request.into + message.offset, payload.data() + sizeof(wire::DmaAccess), message.size);
    } else {
      request.failed = true;
    }
  } else if (!payload.empty()) {
    // QEMU answers a write with the bare header; the text has an address and a 4-byte count.
    request.failed = request.failed || payload.size() < wire::dma_write_reply_size ||
                     load<std::uint32_t>(payload.subspan(sizeof(std::uint64_t))) != message.size;
  }
  if (ended(request)) {
    finish(message.request);
  }
  issue();
  return true;
}

void DmaMessages::run_deferred() {
  if (!deferred_) {
    return;
  }
  deferred_ = false;
  const std::uint64_t end = first_ + requests_.size();
  for (std::uint64_t sequence = first_; sequence < end; ++sequence) {
    if (sequence >= first_ && !at(sequence).finished && ended(at(sequence))) {
      finish(sequence);
    }
  }
  issue();
}

void DmaMessages::finish(std::uint64_t sequence) {
  Request& request = at(sequence);
  request.finished = true;
  const Request done = request;
  while (!requests_.empty() && requests_.front().finished) {
    requests_.pop_front();
    ++first_;
  }
  next_issue_ = std::max(next_issue_, first_);
  const bool ok = !done.failed;
  observer_.on_dma_done(done.write, done.address,
                        {done.into, ok && !done.write ? static_cast<std::size_t>(done.size) : 0}, ok);
  done.done(done.context, ok);
}

}  // namespace orrery::bridge
