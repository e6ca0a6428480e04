// Where an instance link listens or connects to, as a user writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace orrery::instance_link {

struct Endpoint {
  enum class Kind : std::uint8_t { unix_socket, tcp };
  Kind kind = Kind::unix_socket;
  std::string path;                        // unix_socket
  std::string host;                        // tcp: a numeric IPv4 or IPv6 address
  std::uint16_t port = 0;                  // tcp; 0 only to listen: one that is free
  [[nodiscard]] std::string text() const;  // as parse_endpoint() reads it
  // Whether nobody but this machine can reach it.
  [[nodiscard]] bool is_local() const;
};

// "unix:PATH", "tcp:PORT" (127.0.0.1), "tcp:ADDRESS:PORT", "tcp:[IPv6 ADDRESS]:PORT". Throws Error, whose remedy names
// these forms.
Endpoint parse_endpoint(std::string_view text);

}  // namespace orrery::instance_link
