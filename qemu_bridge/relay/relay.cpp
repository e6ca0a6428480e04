// The relay's side towards the client.
#include "qemu_bridge/relay/relay.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "qemu_bridge/capabilities.h"

namespace orrery::bridge {

Relay::SavedPayload::SavedPayload(std::span<const std::byte> payload) : size_(payload.size()) {
  if (size_ <= small_.size()) {
    std::copy(payload.begin(), payload.end(), small_.begin());
  } else {
    large_.assign(payload.begin(), payload.end());
  }
}

Relay::Relay(RelayOutput& output, RelayObserver& observer) : output_(output), observer_(observer) {
  outstanding_.reserve(max_outstanding);
}

void Relay::received(RelaySide side, std::size_t bytes, std::span<FileDescriptor> descriptors, bool descriptors_lost) {
  MessageBuffer& in = buffer(side);
  in.commit(bytes);
  if (side == RelaySide::server) {
    // No reply that reaches the client has descriptors: they would lead to the server's memory.
    for (FileDescriptor& descriptor : descriptors) {
      descriptor.reset();
    }
    take_server_messages();
    return;
  }
  if (!descriptors.empty() || descriptors_lost) {
    inbox_.keep(in.received() - 1, descriptors, descriptors_lost);
  }
  take_client_messages();
}

void Relay::take_client_messages() {
  MessageBuffer& in = buffer(RelaySide::client);
  while (wants_client_input()) {
    switch (in.next()) {
      case MessageBuffer::Next::message: {
        DescriptorInbox::Descriptors own;
        Message message{in.header(), in.payload(), {}, false};
        if (!inbox_.empty()) {
          const DescriptorInbox::Taken taken = inbox_.take(in.message_begin(), in.message_end(), own);
          message.descriptors = std::span(own).first(taken.count);
          message.surplus_descriptors = taken.surplus;
        }
        client_message(message);
        break;
      }
      case MessageBuffer::Next::incomplete:
        inbox_.settle();
        return;
      case MessageBuffer::Next::broken:
        if ((in.header().flags & wire::type_mask) == wire::type_command) {
          reply_to_client(in.header(), EMSGSIZE, {});
        }
        give_up_client();
        break;
    }
  }
}

void Relay::client_message(const Message& message) {
  switch (message.header.flags & wire::type_mask) {
    case wire::type_reply:
      client_reply(message);
      break;
    case wire::type_command:
      client_command(message);
      break;
    default:
      reply_to_client(message.header, EINVAL, {});
      break;
  }
}

void Relay::client_command(const Message& message) {
  if (proposal_.empty()) {
    client_version(message);
    return;
  }
  // Nothing is answered before the version is.
  if (!device_ || (message.header.flags & ~wire::flag_no_reply) != wire::type_command || message.surplus_descriptors) {
    reply_to_client(message.header, EINVAL, {});
    return;
  }
  switch (message.command()) {
    case wire::Command::version:
    case wire::Command::dma_read:
    case wire::Command::dma_write:
      reply_to_client(message.header, EINVAL, {});
      return;
    default:
      break;
  }
  std::vector<SharedDescriptor> descriptors;
  if (!message.descriptors.empty()) {
    descriptors = record_.share(message.command(), message.descriptors);
  }
  if (state_ != State::live || ClientRecord::answers_always(message.command())) {
    answer_here(message.header, message.payload, descriptors);
  } else if (const int error = record_.admit(message.command(), descriptors); error != 0) {
    reply_to_client(message.header, error, {});
  } else {
    forward(message, std::move(descriptors));
  }
}

void Relay::client_version(const Message& message) {
  int error = EINVAL;
  if (message.command() == wire::Command::version && message.header.flags == wire::type_command &&
      message.descriptors.empty() && !message.surplus_descriptors) {
    error = decode_version(message.payload).error;
  }
  if (error == 0 && state_ != State::attaching) {
    error = ENODEV;  // there was never a server
  }
  if (error != 0) {
    reply_to_client(message.header, error, {});
    give_up_client();
    return;
  }
  proposal_ = without_twin_socket(message.payload);
  unanswered_version_ = message.header;
  start_inquiry();
}

void Relay::client_reply(const Message& message) {
  const auto it = std::find_if(passed_.begin(), passed_.end(), [&](const Passed& passed) {
    return passed.id == message.header.message_id && passed.command == message.header.command;
  });
  if (it == passed_.end()) {
    return;
  }
  const Passed passed = *it;
  passed_.erase(it);
  if (passed.orphan) {
    return;
  }
  wire::Header header = message.header;
  header.message_id = passed.server_id;
  std::array<std::byte, sizeof(wire::Header)> head;
  store(std::span(head), header);
  if (!output_.send(RelaySide::server, head, message.payload, {})) {
    lose_server("it doesn't read the answers to its requests");
  }
}

void Relay::forward(const Message& message, std::vector<SharedDescriptor> descriptors) {
  wire::Header header = message.header;
  header.message_id = next_server_id();
  std::array<std::byte, sizeof(wire::Header)> head;
  store(std::span(head), header);
  std::array<int, DescriptorInbox::capacity> numbers{};
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    numbers[i] = descriptors[i]->get();
  }
  if (!output_.send(RelaySide::server, head, message.payload, std::span(numbers).first(descriptors.size()))) {
    lose_server("it doesn't read its requests");
    answer_here(message.header, message.payload, descriptors);
  } else if (message.wants_reply()) {
    outstanding_bytes_ += message.payload.size();
    outstanding_.push_back(
        {header.message_id, message.header, false, SavedPayload(message.payload), std::move(descriptors)});
  } else {
    record_.carried_out(message.command(), message.payload, descriptors);
  }
}

void Relay::answer_here(const wire::Header& header, std::span<const std::byte> payload,
                        std::span<const SharedDescriptor> descriptors) {
  const auto command = static_cast<wire::Command>(header.command);
  reply_.clear();
  const int error = record_.answer(command, payload, descriptors, reply_);
  reply_to_client(header, error, reply_);
  if (error == 0 && state_ == State::replaying && ClientRecord::concerns_replay(command, payload)) {
    // Bounded: a replay that never catches up is begun anew, with what was noted.
    if (replay_.size() >= 2 * DmaRecord::max_maps) {
      lose_server("it takes in slower what its client asked for than the client asks");
      return;
    }
    replay_.push_back({command, {payload.begin(), payload.end()}, {descriptors.begin(), descriptors.end()}});
    continue_replay();
  }
}

void Relay::reply_to_client(const wire::Header& header, int error, std::span<const std::byte> payload) {
  if ((header.flags & wire::flag_no_reply) != 0 || !client_wanted_) {
    return;
  }
  std::array<std::byte, sizeof(wire::Header)> head;
  store(std::span(head), error != 0 ? error_header(header, error) : reply_header(header, payload.size()));
  if (!output_.send(RelaySide::client, head, error != 0 ? std::span<const std::byte>() : payload, {})) {
    give_up_client();
  }
}

void Relay::give_up_client() {
  client_wanted_ = false;
  server_wanted_ = false;
}

}  // namespace orrery::bridge
