// The relay's side towards the server.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "qemu_bridge/relay/relay.h"

namespace orrery::bridge {
namespace {

// Commands of a replay that are under way at once: few enough that their descriptors, which are duplicated while
// they wait to be sent, don't use up the process' own.
constexpr std::size_t replay_window = 32;

}  // namespace

void Relay::server_connected() {
  buffer(RelaySide::server) = MessageBuffer();
  state_ = State::attaching;
  server_wanted_ = true;
  if (!proposal_.empty()) {
    start_inquiry();
  }
}

void Relay::server_gone(std::string_view reason) {
  if (state_ != State::absent) {
    lose_server(reason);
    take_client_messages();
  }
}

void Relay::take_server_messages() {
  MessageBuffer& in = buffer(RelaySide::server);
  while (server_wanted_) {
    const MessageBuffer::Next next = in.next();
    if (next == MessageBuffer::Next::incomplete) {
      break;
    }
    if (next == MessageBuffer::Next::broken) {
      lose_server("it sent a message of impossible size");
      break;
    }
    if (state_ != State::refused) {
      server_message({in.header(), in.payload(), {}, false});
    }
  }
  take_client_messages();  // those that waited for room
}

void Relay::server_message(const Message& message) {
  switch (message.header.flags & wire::type_mask) {
    case wire::type_reply:
      server_reply(message);
      break;
    case wire::type_command:
      server_command(message);
      break;
    default:
      lose_server("it sent a message that is neither command nor reply");
      break;
  }
}

void Relay::server_reply(const Message& message) {
  const auto it = std::find_if(outstanding_.begin(), outstanding_.end(), [&](const Outstanding& request) {
    return request.id == message.header.message_id && request.header.command == message.header.command;
  });
  if (it == outstanding_.end()) {
    lose_server("it answered what was not asked");
    return;
  }
  if (!it->own && !reply_fits(*it, message)) {
    lose_server(fmt::format("its answer to command {} is malformed", message.header.command));
    return;
  }
  const Outstanding request = std::move(*it);
  outstanding_.erase(it);
  outstanding_bytes_ -= request.payload.get().size();
  if (request.own) {
    own_reply(message);
    return;
  }
  const bool error = (message.header.flags & wire::flag_error) != 0;
  if (!error) {
    record_.carried_out(static_cast<wire::Command>(request.header.command), request.payload.get(), request.descriptors);
  }
  wire::Header header = message.header;
  header.message_id = request.header.message_id;
  std::array<std::byte, sizeof(wire::Header)> head;
  store(std::span(head), header);
  if (!output_.send(RelaySide::client, head, message.payload, {})) {
    give_up_client();
  }
}

// A client may have room for just the answer that its request leads to.
bool Relay::reply_fits(const Outstanding& request, const Message& reply) {
  if ((reply.header.flags & wire::flag_error) != 0) {
    return reply.payload.empty();
  }
  const std::span<const std::byte> payload = request.payload.get();
  const auto command = static_cast<wire::Command>(request.header.command);
  if (command == wire::Command::region_write || command == wire::Command::region_write_multi) {
    return reply.payload.size() <= sizeof(wire::RegionAccess);
  }
  if (command != wire::Command::region_read) {
    // All others begin with the size that their client has room for.
    const std::size_t room = payload.size() < sizeof(std::uint32_t) ? 0 : load<std::uint32_t>(payload);
    return reply.payload.size() <= std::max(payload.size(), room);
  }
  const auto asked = decode_region_read(payload);
  return asked && reply.payload.size() == sizeof(wire::RegionAccess) + asked.value.count &&
         load<wire::RegionAccess>(reply.payload).count == asked.value.count;
}

void Relay::server_command(const Message& message) {
  const bool dma = message.command() == wire::Command::dma_read || message.command() == wire::Command::dma_write;
  if (!dma || message.payload.size() < sizeof(wire::DmaAccess)) {
    lose_server("it sent a command that is not a server's");
    return;
  }
  std::array<std::byte, sizeof(wire::Header)> head;
  if (passed_.size() >= max_passed) {
    // A client that owes answers to a server that has gone may owe them for ever.
    const auto orphan =
        std::find_if(passed_.begin(), passed_.end(), [](const Passed& passed) { return passed.orphan; });
    if (orphan != passed_.end()) {
      passed_.erase(orphan);
    }
  }
  if (state_ != State::live || (message.wants_reply() && passed_.size() >= max_passed)) {
    store(std::span(head), error_header(message.header, EBUSY));
    if (message.wants_reply() && !output_.send(RelaySide::server, head, {}, {})) {
      lose_server("it doesn't read the answers to its requests");
    }
    return;
  }
  const auto in_use = [&](std::uint16_t id) {
    return std::any_of(passed_.begin(), passed_.end(), [id](const Passed& passed) { return passed.id == id; });
  };
  do {
    ++next_client_id_;
  } while (in_use(next_client_id_));
  wire::Header header = message.header;
  header.message_id = next_client_id_;
  store(std::span(head), header);
  if (message.wants_reply()) {
    passed_.push_back({header.message_id, message.header.message_id, header.command, false});
  }
  if (!output_.send(RelaySide::client, head, message.payload, {})) {
    give_up_client();
  }
}

void Relay::own_reply(const Message& message) {
  --own_outstanding_;
  if (state_ == State::attaching) {
    if (const std::string wrong = inquiry_->take(message.header, message.payload); !wrong.empty()) {
      refuse(wrong);
    } else {
      ask_next();
    }
  } else if ((message.header.flags & wire::flag_error) != 0) {
    refuse(fmt::format("it answers command {}, which sets the device up again, with the error '{}'",
                       message.header.command,
                       std::generic_category().message(static_cast<int>(message.header.error))));
  } else {
    continue_replay();
  }
}

void Relay::start_inquiry() {
  inquiry_.emplace(proposal_);
  ask_next();
}

void Relay::ask_next() {
  if (std::optional<DeviceInquiry::Question> question = inquiry_->question()) {
    send_own({question->command, std::move(question->payload), {}});
  } else {
    inquired();
  }
}

void Relay::inquired() {
  DeviceDescription found = std::move(inquiry_->description());
  inquiry_.reset();
  if (!device_) {
    device_ = std::move(found);
    record_.open(*device_);
    state_ = State::live;
    reply_to_client(*unanswered_version_, 0, device_->version_reply);
    unanswered_version_.reset();
    observer_.on_attached(false);
    return;
  }
  if (const std::string other = difference(*device_, found); !other.empty()) {
    refuse(other);
    return;
  }
  std::vector<RelayRequest> requests = record_.replay();
  replay_.assign(std::make_move_iterator(requests.begin()), std::make_move_iterator(requests.end()));
  state_ = State::replaying;
  continue_replay();
}

void Relay::continue_replay() {
  while (state_ == State::replaying && !replay_.empty() && own_outstanding_ < replay_window) {
    const RelayRequest request = std::move(replay_.front());
    replay_.pop_front();
    send_own(request);
  }
  if (state_ == State::replaying && own_outstanding_ == 0) {
    state_ = State::live;
    observer_.on_attached(true);
  }
}

void Relay::send_own(const RelayRequest& request) {
  const wire::Header header = command_header(next_server_id(), request.command, request.payload.size());
  std::array<std::byte, sizeof(wire::Header)> head;
  store(std::span(head), header);
  std::array<int, DescriptorInbox::capacity> numbers{};
  for (std::size_t i = 0; i < request.descriptors.size(); ++i) {
    numbers[i] = request.descriptors[i]->get();
  }
  ++own_outstanding_;
  outstanding_.push_back({header.message_id, header, true, SavedPayload({}), {}});
  if (!output_.send(RelaySide::server, head, request.payload, std::span(numbers).first(request.descriptors.size()))) {
    lose_server("it doesn't read its requests");
  }
}

std::uint16_t Relay::next_server_id() {
  const auto in_use = [&](std::uint16_t id) {
    return std::any_of(outstanding_.begin(), outstanding_.end(),
                       [id](const Outstanding& request) { return request.id == id; });
  };
  do {
    ++next_server_id_;
  } while (in_use(next_server_id_));
  return next_server_id_;
}

void Relay::lose_server(std::string_view reason) {
  if (state_ == State::absent) {
    return;
  }
  const bool used = state_ == State::replaying || state_ == State::live;
  state_ = State::absent;
  server_wanted_ = false;
  forget_server();
  if (used) {
    observer_.on_lost(reason);
  }
}

void Relay::refuse(std::string_view reason) {
  state_ = State::refused;
  forget_server();
  observer_.on_refused(reason);
}

void Relay::forget_server() {
  inquiry_.reset();
  replay_.clear();
  own_outstanding_ = 0;
  for (Passed& passed : passed_) {
    passed.orphan = true;
  }
  const std::vector<Outstanding> unanswered = std::exchange(outstanding_, {});
  outstanding_.reserve(max_outstanding);
  outstanding_bytes_ = 0;
  for (const Outstanding& request : unanswered) {
    if (!request.own) {
      // It was meant for the device as it was, unlike what comes from now on.
      const auto command = static_cast<wire::Command>(request.header.command);
      if (command == wire::Command::region_write || command == wire::Command::region_write_multi) {
        record_.carried_out(command, request.payload.get(), {});
      }
      answer_here(request.header, request.payload.get(), request.descriptors);
    }
  }
  if (unanswered_version_) {
    reply_to_client(*unanswered_version_, ENODEV, {});
    unanswered_version_.reset();
    give_up_client();
  }
}

}  // namespace orrery::bridge
