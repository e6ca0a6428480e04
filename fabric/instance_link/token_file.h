// The secret that linked servers share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orrery::instance_link {

inline constexpr std::size_t least_token_bytes = 16;
inline constexpr std::size_t most_token_bytes = 4096;

// The file's contents, without white space at the end. Throws Error that names the file: it can't be read, isn't a
// regular file of this user (or root), is open to others, or holds too little or too much.
std::vector<std::byte> read_token(const std::string& path);

}  // namespace orrery::instance_link
