// The verbs engine with the mlx5 queue formats, plugged into a fabric, as an RNIC's data path.
#pragma once

#include <memory>

#include "fabric/packet_pool.h"
#include "fabric/port.h"
#include "systemc_models/rnic/control_plane.h"

namespace orrery::rnic {

// `sink`, `port` and `pool` outlive the result.
[[nodiscard]] std::unique_ptr<DataPath> make_verbs_data_path(const VerbsSettings& settings, EventSink& sink,
                                                             fabric::Port& port, fabric::PacketPool& pool);

}  // namespace orrery::rnic
