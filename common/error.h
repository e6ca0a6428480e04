// The one exception type that reaches a user as a message.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace orrery {

// Something the user can mend: names the file, key, field or peer and, as the remedy, what would be
// right. The program prints "orrery: <what>" and, on a second line, the remedy, and exits non-zero.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, std::string remedy = {})
      : std::runtime_error(what), remedy_(std::move(remedy)) {}
  [[nodiscard]] const std::string& remedy() const { return remedy_; }

 private:
  std::string remedy_;
};

}  // namespace orrery
