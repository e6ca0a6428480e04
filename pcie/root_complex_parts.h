// The root complex's own records, shared by its two halves (root_complex.cpp, root_complex_cpu.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "pcie/root_complex.h"

namespace orrery::pcie {

struct RootComplex::Port final : TlpSink {
  Port(RootComplex& owner_complex, unsigned port_index) : owner(owner_complex), index(port_index) {}
  Picoseconds receive(TlpPtr tlp, Picoseconds delay) override { return owner.receive(index, std::move(tlp), delay); }

  RootComplex& owner;
  unsigned index;
  unsigned socket = 0;
  BusRange buses;
  AcsControl acs;
  TlpSink* egress = nullptr;
  Picoseconds posted_ready;  // when the last posted request for it leaves
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
  // CPU requests with bytes left to ask for.
  HostRequest* first = nullptr;
  HostRequest* last = nullptr;
  bool issuing = false;
};

struct RootComplex::Destination {
  enum class Kind : std::uint8_t { fault, nowhere, peer, direct, remote };
  Kind kind = Kind::nowhere;
  Hpa address;
  std::uint32_t bytes = 0;  // >= 1; less than the rest of the request: ask again
  unsigned port = 0;        // peer
  HostMemory::Window window;
};

}  // namespace orrery::pcie
