// Prints a configuration: as a commented TOML file, as TOML with origins, or as JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/config.h"

namespace orrery {

// What a writer has to say about one key, in order of the description.
struct ConfigItem {
  std::string path;   // "topology.switches", "guest.0.name"
  std::string value;  // as TOML; empty: not set
  std::string rule;   // "a whole number from 0 to 8"
  std::string meaning;
  std::string source;
  std::string origin;  // ConfigOrigin::text()
};

// Common to the writers: turns each key into a ConfigItem. The description is run on a copy of the
// configuration, because lists without elements may be shown with an example.
class ConfigWriter : public ConfigVisitor {
 public:
  explicit ConfigWriter(const ConfigOrigins* origins) : origins_(origins) {}

  void begin_table(std::string_view key, const char* meaning) override;
  void end_table() override;
  void boolean(std::string_view key, bool& value, ConfigNote note) override;
  void integer64(std::string_view key, std::optional<std::uint64_t>& value, bool required, const IntegerRule& rule,
                 ConfigNote note) override;
  void number(std::string_view key, double& value, const NumberRule& rule, ConfigNote note) override;
  void text(std::string_view key, std::string& value, const TextRule& rule, ConfigNote note) override;
  void choice_index(std::string_view key, std::size_t& value, std::span<const std::string> names,
                    ConfigNote note) override;
  void duration(std::string_view key, std::optional<Picoseconds>& value, TimeUnit unit, const TimeRule& rule,
                ConfigNote note) override;
  void texts(std::string_view key, std::vector<std::string>& value, const TextRule& rule, ConfigNote note) override;
  void integers(std::string_view key, std::vector<std::uint64_t>& value, const IntegerRule& rule,
                std::size_t maximum_count, ConfigNote note) override;
  void free_table(std::string_view key, std::map<std::string, std::string>& value, ConfigNote note) override;
  std::size_t begin_list(std::string_view key, std::size_t size, std::size_t maximum, const char* meaning) override;
  void begin_element(std::size_t index) override;
  void end_element() override;
  void end_list() override;
  std::vector<unsigned> begin_numbered(std::string_view key, const std::vector<unsigned>& present, unsigned maximum,
                                       const char* meaning) override;
  void begin_number(unsigned number) override;
  void end_number() override;
  void end_numbered() override;

 protected:
  // A table of the file begins: `header` is "[link.rnic]" or "[[guest]]"; called before its first key.
  virtual void write_header(const std::string& header, const std::string& meaning) = 0;
  virtual void write_item(const std::string& key, const ConfigItem& item) = 0;
  // Whether an empty list or numbered table is shown with one example element.
  [[nodiscard]] virtual bool wants_examples() const { return false; }
  [[nodiscard]] bool in_example() const { return example_depth_ != 0; }

 private:
  struct Frame {
    std::string path;    // with element numbers
    std::string header;  // path without element numbers
    std::string meaning;
    bool is_list = false;  // [[header]] for its elements
    bool is_element = false;
    bool header_written = false;
    bool is_example = false;
  };
  void emit(std::string_view key, std::string value, std::string rule, ConfigNote note);
  void push(std::string_view key, const char* meaning);
  void pop();

  const ConfigOrigins* origins_;
  std::vector<Frame> frames_;
  unsigned example_depth_ = 0;
};

// TOML that parses back to the same configuration.
class TomlWriter final : public ConfigWriter {
 public:
  enum class Remarks : std::uint8_t {
    meaning,  // a comment above each key, and an example of each empty list
    origin,   // a comment beside each key: where its value comes from
    none,
  };
  explicit TomlWriter(Remarks remarks, const ConfigOrigins* origins = nullptr)
      : ConfigWriter(origins), remarks_(remarks) {}
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void write_header(const std::string& header, const std::string& meaning) override;
  void write_item(const std::string& key, const ConfigItem& item) override;
  [[nodiscard]] bool wants_examples() const override { return remarks_ == Remarks::meaning; }

  Remarks remarks_;
  std::string text_;
};

// The items themselves, for tables and JSON.
class ConfigLister final : public ConfigWriter {
 public:
  // `examples`: include the keys of lists that are empty.
  explicit ConfigLister(const ConfigOrigins* origins = nullptr, bool examples = false)
      : ConfigWriter(origins), examples_(examples) {}
  [[nodiscard]] const std::vector<ConfigItem>& items() const { return items_; }

 private:
  void write_header(const std::string& /*header*/, const std::string& /*meaning*/) override {}
  void write_item(const std::string& /*key*/, const ConfigItem& item) override { items_.push_back(item); }
  [[nodiscard]] bool wants_examples() const override { return examples_; }

  bool examples_;
  std::vector<ConfigItem> items_;
};

}  // namespace orrery
