// Configuration files: strict, and every complaint says where and what would be right.
//
// A configuration is described once, by a function that walks its struct with a ConfigVisitor (one call
// a key: name, place, rule, comment, source). ConfigReader fills the struct from TOML, the writers in
// common/config_writer.h print it. So a key, its range, its default and its documentation cannot diverge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/time.h"

namespace orrery {

// Where the effective value of a key comes from.
struct ConfigOrigin {
  enum class Kind : std::uint8_t { default_value, file, override_option };
  Kind kind = Kind::default_value;
  std::string file;                        // file: its name
  unsigned line = 0;                       // file: 1-based
  std::string assignment;                  // override_option: "topology.switches=1"
  [[nodiscard]] std::string text() const;  // "default", "server.toml:7", "--set topology.switches=1"
};

// By key path ("topology.switches", "guest.0.name"); a path that isn't there has its default.
using ConfigOrigins = std::map<std::string, ConfigOrigin, std::less<>>;

// Everything that is wrong with one configuration. Not thrown one by one: a user mends them all at once.
class ConfigProblems {
 public:
  // `fallback`: what to name as the place of a key that appears nowhere, e.g. the file.
  explicit ConfigProblems(std::string fallback = "configuration") : fallback_(std::move(fallback)) {}

  // `what` continues "<place>: <path>: "; `remedy` says what would be right.
  void add(std::string_view path, std::string what, std::string remedy);
  void add_at(std::string place, std::string_view path, std::string what, std::string remedy);
  [[nodiscard]] bool empty() const { return problems_.empty(); }
  [[nodiscard]] std::size_t size() const { return problems_.size(); }
  // Throws one Error with all of them; does nothing if there are none.
  void throw_if_any() const;
  [[nodiscard]] ConfigOrigins& origins() { return origins_; }
  [[nodiscard]] const ConfigOrigins& origins() const { return origins_; }

 private:
  struct Problem {
    std::string text;
    std::string remedy;
  };
  std::string fallback_;
  ConfigOrigins origins_;
  std::vector<Problem> problems_;
};

// What a key means and why its default is what it is.
struct ConfigNote {
  const char* meaning;
  const char* source;  // "specification: …", "measured: …", "vendor: …", "estimate: …", "choice"
};

struct IntegerRule {
  std::uint64_t minimum = 0;
  std::uint64_t maximum = std::numeric_limits<std::int64_t>::max();  // TOML's integers are signed 64-bit
  bool power_of_two = false;
  bool hexadecimal = false;                    // how writers print it; both forms are read
  std::span<const std::uint64_t> one_of = {};  // if not empty, exactly these
};

struct NumberRule {
  double minimum = 0;          // inclusive
  double maximum = 1e18;       // inclusive
  bool above_minimum = false;  // minimum itself is not allowed
};

struct TextRule {
  bool may_be_empty = true;
  // Names of things: letters, digits, '-', '_' and '.', starting with a letter or digit, at most 64 bytes.
  bool identifier = false;
  // An identifier that QEMU takes as the id of a device: a letter first, no '.', at most 32 bytes.
  bool device_id = false;
  std::size_t maximum_bytes = 4096;
};

enum class TimeUnit : std::uint8_t { picoseconds, nanoseconds };

struct TimeRule {
  Picoseconds minimum = {0};
  Picoseconds maximum = {1'000'000'000'000};  // 1 s
};

// Walks a configuration. A description calls it in a fixed order; lists come after scalars of their table.
class ConfigVisitor {
 public:
  virtual ~ConfigVisitor() = default;

  virtual void begin_table(std::string_view key, const char* meaning) = 0;
  virtual void end_table() = 0;

  virtual void boolean(std::string_view key, bool& value, ConfigNote note) = 0;
  virtual void integer64(std::string_view key, std::optional<std::uint64_t>& value, bool required,
                         const IntegerRule& rule, ConfigNote note) = 0;
  virtual void number(std::string_view key, double& value, const NumberRule& rule, ConfigNote note) = 0;
  virtual void text(std::string_view key, std::string& value, const TextRule& rule, ConfigNote note) = 0;
  virtual void choice_index(std::string_view key, std::size_t& value, std::span<const std::string> names,
                            ConfigNote note) = 0;
  virtual void duration(std::string_view key, std::optional<Picoseconds>& value, TimeUnit unit, const TimeRule& rule,
                        ConfigNote note) = 0;
  virtual void texts(std::string_view key, std::vector<std::string>& value, const TextRule& rule, ConfigNote note) = 0;
  virtual void integers(std::string_view key, std::vector<std::uint64_t>& value, const IntegerRule& rule,
                        std::size_t maximum_count, ConfigNote note) = 0;
  // A table of the user's own keys: any scalar, kept as text ("true", "12", "0.5", "x").
  virtual void free_table(std::string_view key, std::map<std::string, std::string>& value, ConfigNote note) = 0;

  // A list of tables ([[key]]). Returns how many elements to visit.
  virtual std::size_t begin_list(std::string_view key, std::size_t size, std::size_t maximum, const char* meaning) = 0;
  virtual void begin_element(std::size_t index) = 0;
  virtual void end_element() = 0;
  virtual void end_list() = 0;

  // Tables under numbers ([key.3]). Returns the numbers to visit, ascending.
  virtual std::vector<unsigned> begin_numbered(std::string_view key, const std::vector<unsigned>& present,
                                               unsigned maximum, const char* meaning) = 0;
  virtual void begin_number(unsigned number) = 0;
  virtual void end_number() = 0;
  virtual void end_numbered() = 0;

  // Typed conveniences over the calls above.
  template <class Integer>
  void integer(std::string_view key, Integer& value, const IntegerRule& rule, ConfigNote note) {
    std::optional<std::uint64_t> wide = static_cast<std::uint64_t>(value);
    integer64(key, wide, true, rule, note);
    value = static_cast<Integer>(*wide);
  }
  template <class Integer>
  void optional_integer(std::string_view key, std::optional<Integer>& value, const IntegerRule& rule, ConfigNote note) {
    std::optional<std::uint64_t> wide;
    if (value) {
      wide = static_cast<std::uint64_t>(*value);
    }
    integer64(key, wide, false, rule, note);
    value = wide ? std::optional<Integer>(static_cast<Integer>(*wide)) : std::nullopt;
  }
  void time(std::string_view key, Picoseconds& value, TimeUnit unit, const TimeRule& rule, ConfigNote note) {
    std::optional<Picoseconds> place = value;
    duration(key, place, unit, rule, note);
    value = *place;
  }
  template <class Enum>
  void choice(std::string_view key, Enum& value, std::span<const std::string> names, ConfigNote note) {
    std::size_t index = static_cast<std::size_t>(value);
    choice_index(key, index, names, note);
    value = static_cast<Enum>(index);
  }
  template <class Element, class Describe>
  void list(std::string_view key, std::vector<Element>& elements, std::size_t maximum, const char* meaning,
            Describe describe) {
    elements.resize(begin_list(key, elements.size(), maximum, meaning));
    for (std::size_t i = 0; i < elements.size(); ++i) {
      begin_element(i);
      describe(*this, elements[i]);
      end_element();
    }
    end_list();
  }
  template <class Element, class Describe>
  void numbered(std::string_view key, std::map<unsigned, Element>& elements, unsigned maximum, const char* meaning,
                Describe describe) {
    std::vector<unsigned> present;
    present.reserve(elements.size());
    for (const auto& entry : elements) {
      present.push_back(entry.first);
    }
    for (const unsigned number : begin_numbered(key, present, maximum, meaning)) {
      begin_number(number);
      describe(*this, elements[number]);
      end_number();
    }
    end_numbered();
  }
};

// Parsed TOML text with command-line overrides on top. Movable.
class ConfigDocument {
 public:
  // Largest file that is read, in bytes: a configuration is written by hand.
  static constexpr std::size_t maximum_bytes = 1 << 20;

  // An empty document: everything default.
  ConfigDocument();
  ConfigDocument(ConfigDocument&&) noexcept;
  ConfigDocument& operator=(ConfigDocument&&) noexcept;
  ~ConfigDocument();

  // `name` stands for the text in messages. Throws Error on a syntax error.
  static ConfigDocument parse(std::string_view text, const std::string& name);
  // Throws Error if the file cannot be read or parsed.
  static ConfigDocument load(const std::string& path);

  // One --set option: "path.of.key=value". The value is TOML ('7', '0x1d', 'true', '"text"', '[1, 2]');
  // anything that isn't is taken as text. A list element is addressed by its number ("guest.0.cpus"), the
  // number after the last one adds an element. Throws Error.
  void set(std::string_view assignment);

  [[nodiscard]] const std::string& name() const;

 private:
  friend class ConfigReader;
  struct State;
  std::unique_ptr<State> state_;
};

// Fills a configuration from a document. Use: describe(config, reader); reader.finish().
class ConfigReader final : public ConfigVisitor {
 public:
  // The document and the problems outlive the reader; problems also receive the origins.
  ConfigReader(const ConfigDocument& document, ConfigProblems& problems);
  ~ConfigReader() override;
  // Reports unknown keys of the top level. Problems are in `problems`, nothing is thrown.
  void finish();

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

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery
