// The IOMMU: which domain a requester ID belongs to, and where its DMA goes.
//
// Second-stage translation after Intel's VT-d Architecture Specification: requester ID to domain, domain to
// a 4-level page table in modelled memory (pcie/page_table.h), faults into a ring with an overflow flag.
//
// Not here: an IOTLB, walk caches, ATS translation and invalidation, interrupt remapping, and what a walk
// costs. Every translation walks its table. Whoever caches translations keys them by (domain, generation())
// and drops those of an older generation; a change of attachment needs no drop, if the cache looks the
// requester's domain up anew.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/address.h"
#include "common/time.h"
#include "pcie/page_table.h"
#include "pcie/tlp.h"

namespace orrery::pcie {

enum class DomainMode : std::uint8_t {
  translated,   // page table
  passthrough,  // IOVA = HPA
  blocked,      // every access faults
};

// A domain's number within one Iommu; 0 is no domain.
struct DomainId {
  std::uint16_t value = 0;
  constexpr auto operator<=>(const DomainId&) const = default;
  [[nodiscard]] constexpr bool valid() const { return value != 0; }
};

enum class IommuFaultReason : std::uint8_t {
  none,
  no_domain,      // the requester ID is attached to no domain
  blocked,        // its domain blocks
  address_width,  // beyond 48 bits (translated) or beyond the host's address width (passthrough)
  not_present,
  read_permission,
  write_permission,
  malformed_entry,  // see WalkFault
  table_access,
};
[[nodiscard]] const char* name(IommuFaultReason reason);

struct TranslationRequest {
  Bdf requester{};
  Iova address{};
  std::uint64_t length = 1;  // bytes; 0 (a zero-length read) counts as 1
  DmaDirection direction = DmaDirection::read;
  Picoseconds now{};  // for the fault record
};

struct Translation {
  Hpa address;
  // Bytes valid from `address` on, 1 … length; fewer than length: ask again for the rest. 0: fault.
  std::uint64_t bytes = 0;
  IommuFaultReason fault = IommuFaultReason::none;
  // Memory reads of the page walk; the same for every page in the range, so a burst's reads are the number
  // of its TLPs times this. 0 in passthrough.
  std::uint8_t steps = 0;
  std::uint8_t page_shift = 0;  // 12, 21 or 30; 0 in passthrough
  bool readable = false;        // rights of the first page (an ATS completion will carry them)
  bool writable = false;
  DomainId domain;

  [[nodiscard]] bool ok() const { return fault == IommuFaultReason::none; }
};

struct IommuFault {
  Bdf requester;
  DomainId domain;
  Iova address;  // the byte address asked for
  DmaDirection direction = DmaDirection::read;
  IommuFaultReason reason = IommuFaultReason::none;
  Picoseconds time;
};

// Called for each fault of translate(), recorded or not, as the last thing that translate() does: it may call
// the Iommu again.
class IommuFaultObserver {
 public:
  virtual void on_iommu_fault(const IommuFault& fault) = 0;

 protected:
  ~IommuFaultObserver() = default;
};

// One thread. translate() doesn't allocate.
class Iommu {
 public:
  struct Config {
    PageTable::Config table;
    std::uint32_t fault_records = 256;  // capacity of the ring, 1 … 65536
  };

  // `memory` must outlive the Iommu. Throws Error for a value out of range.
  Iommu(PageTableMemory& memory, const Config& config);
  explicit Iommu(PageTableMemory& memory) : Iommu(memory, Config{}) {}

  // --- Domains ---------------------------------------------------------------------------------
  // None if 65535 exist.
  [[nodiscard]] std::optional<DomainId> create_domain(DomainMode mode);
  // Frees its tables; requesters attached to it have no domain then. False if there is no such domain.
  bool destroy_domain(DomainId id);
  bool set_mode(DomainId id, DomainMode mode);
  [[nodiscard]] bool exists(DomainId domain) const;
  // Preconditions of the next four: exists(domain).
  [[nodiscard]] DomainMode mode(DomainId domain) const;
  // Counts the changes that make a cached translation wrong: unmap, mode, destruction (it goes on when a
  // number is used again).
  [[nodiscard]] std::uint64_t generation(DomainId domain) const;
  [[nodiscard]] const PageTable& table(DomainId domain) const;
  [[nodiscard]] std::uint32_t domain_count() const { return domain_count_; }

  // --- Requesters ------------------------------------------------------------------------------
  // Moves a requester ID to a domain. False if there is no such domain.
  bool attach(Bdf requester, DomainId domain);
  void detach(Bdf requester) { domain_of_[requester.value] = DomainId{}; }
  // !valid(): none.
  [[nodiscard]] DomainId domain_of(Bdf requester) const { return domain_of_[requester.value]; }

  // --- Mappings --------------------------------------------------------------------------------
  // As PageTable::map and ::unmap; `invalid` if there is no such domain. Legal in every mode: a mapping takes
  // effect when the domain is `translated`.
  PageTableStatus map(DomainId id, Iova iova, Hpa hpa, std::uint64_t size, DmaAccess access);
  PageTableStatus unmap(DomainId id, Iova iova, std::uint64_t size, std::uint64_t* unmapped = nullptr);

  // --- Translation -----------------------------------------------------------------------------
  // A fault is recorded and reported to the observer.
  Translation translate(const TranslationRequest& request) {
    const Translation result = probe(request);
    if (!result.ok()) [[unlikely]] {
      record(request, result);
    }
    return result;
  }
  // The same without a fault record: what an ATS translation request or a debugger asks.
  [[nodiscard]] Translation probe(const TranslationRequest& request) const;

  // --- Faults ----------------------------------------------------------------------------------
  // Recorded faults, oldest first; each is taken once.
  std::optional<IommuFault> take_fault();
  [[nodiscard]] std::uint32_t faults_recorded() const { return fault_count_; }
  // A fault found the ring full since the last clear, and was not recorded (VT-d: primary fault overflow).
  [[nodiscard]] bool fault_overflow() const { return fault_overflow_; }
  void clear_fault_overflow() { fault_overflow_ = false; }
  // All faults ever, recorded or not.
  [[nodiscard]] std::uint64_t fault_total() const { return fault_total_; }
  void set_fault_observer(IommuFaultObserver* observer) { observer_ = observer; }

 private:
  struct Domain {
    std::unique_ptr<PageTable> table;  // null: the number is free
    std::uint64_t generation = 0;
    DomainMode mode = DomainMode::blocked;
  };
  void record(const TranslationRequest& request, const Translation& result);
  [[nodiscard]] Domain* find(DomainId domain);

  PageTableMemory& memory_;
  Config config_;
  std::vector<DomainId> domain_of_;  // by requester ID, 65536 entries
  std::vector<Domain> domains_;      // by DomainId; entry 0 is not used
  std::vector<std::uint16_t> free_ids_;
  std::uint32_t domain_count_ = 0;

  std::vector<IommuFault> faults_;  // a ring
  std::uint32_t fault_head_ = 0;
  std::uint32_t fault_count_ = 0;
  bool fault_overflow_ = false;
  std::uint64_t fault_total_ = 0;
  IommuFaultObserver* observer_ = nullptr;
};

}  // namespace orrery::pcie
