// What a configuration hands to a plug-in device: its [[device]] params, as typed values.
//
// Part of the plug-in interface: everything is inline, a shared object needs no symbol of the program.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "common/error.h"

namespace orrery::models {

// Each getter returns the value of `key`, or `fallback` if the configuration doesn't give it, and throws
// Error naming device, key and what would be right for a value that is none. A key that nobody has asked for
// by the end of the factory is an error too: it is most likely misspelt. One thread.
class PluginParameters {
 public:
  PluginParameters(std::string device, std::map<std::string, std::string> values)
      : device_(std::move(device)), values_(std::move(values)) {}

  // Decimal, or hexadecimal with 0x.
  [[nodiscard]] std::uint64_t integer(const std::string& key, std::uint64_t fallback, std::uint64_t minimum = 0,
                                      std::uint64_t maximum = std::numeric_limits<std::uint64_t>::max()) const {
    const std::string* text = find(key);
    if (text == nullptr) {
      return fallback;
    }
    const bool hexadecimal = text->starts_with("0x") || text->starts_with("0X");
    const std::string digits = hexadecimal ? text->substr(2) : *text;
    const bool plain = !digits.empty() && digits.find_first_not_of(hexadecimal ? "0123456789abcdefABCDEF"
                                                                               : "0123456789") == std::string::npos;
    errno = 0;
    const std::uint64_t value = plain ? std::strtoull(digits.c_str(), nullptr, hexadecimal ? 16 : 10) : 0;
    if (!plain || errno == ERANGE || value < minimum || value > maximum) {
      refuse(key, *text, "an integer from " + std::to_string(minimum) + " to " + std::to_string(maximum));
    }
    return value;
  }

  [[nodiscard]] double number(const std::string& key, double fallback, double minimum, double maximum) const {
    const std::string* text = find(key);
    if (text == nullptr) {
      return fallback;
    }
    char* end = nullptr;
    const double value = std::strtod(text->c_str(), &end);
    // The comparison is also false for a NaN.
    if (text->empty() || *end != '\0' || !(value >= minimum && value <= maximum)) {
      refuse(key, *text, "a number from " + std::to_string(minimum) + " to " + std::to_string(maximum));
    }
    return value;
  }

  [[nodiscard]] bool boolean(const std::string& key, bool fallback) const {
    const std::string* text = find(key);
    if (text == nullptr) {
      return fallback;
    }
    if (*text != "true" && *text != "false") {
      refuse(key, *text, "true or false");
    }
    return *text == "true";
  }

  [[nodiscard]] std::string text(const std::string& key, std::string fallback) const {
    const std::string* value = find(key);
    if (value != nullptr) {
      return *value;
    }
    return fallback;
  }

  // For a check of the device's own: throws the same kind of Error. `right` completes "use …".
  [[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& right) const {
    throw Error("device " + device_ + ": params." + key + " = " + value + " is not possible", "use " + right);
  }

  // Throws Error if the configuration gives a key that no getter was called with.
  void throw_if_unknown() const {
    for (const auto& [key, value] : values_) {
      if (!asked_.contains(key)) {
        std::string known;
        for (const std::string& name : asked_) {
          known += (known.empty() ? "" : ", ") + name;
        }
        throw Error("device " + device_ + ": params." + key + " is not a parameter of this model",
                    known.empty() ? "it takes none" : "it takes: " + known);
      }
    }
  }

 private:
  [[nodiscard]] const std::string* find(const std::string& key) const {
    asked_.insert(key);
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

  std::string device_;
  std::map<std::string, std::string> values_;
  mutable std::set<std::string> asked_;
};

}  // namespace orrery::models
