// What proves to a peer that one knows the shared token, without saying it: HMAC-SHA-256 (RFC 2104, FIPS 180-4, by
// libsodium) over both hellos.
//
// Both nonces are in it, so that a recorded proof is of no use in another connection; the role is, so that a peer's own
// proof can't be sent back to it; everything else that was said in the clear is, so that nobody on the way changed it.
#pragma once

#include <span>

#include "fabric/instance_link/messages.h"

namespace orrery::instance_link {

// HMAC-SHA-256 of `message`. Any key.
Proof keyed_hash(std::span<const std::byte> key, std::span<const std::byte> message);
// The proof of the side with `role`. The hellos: bodies as they were sent.
Proof make_proof(std::span<const std::byte> token, Role role, std::span<const std::byte> connector_hello,
                 std::span<const std::byte> listener_hello);
// Takes the same time wherever they differ.
bool equal(const Proof& a, const Proof& b);
// From the system's generator, for one connection.
Nonce make_nonce();

}  // namespace orrery::instance_link
