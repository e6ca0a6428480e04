#include "pcie/iommu.h"

#include <algorithm>

#include <fmt/format.h>

#include "common/error.h"

namespace orrery::pcie {

namespace {

constexpr std::size_t requester_ids = 65536;

IommuFaultReason reason_of(WalkFault fault) {
  switch (fault) {
    case WalkFault::none:
      return IommuFaultReason::none;
    case WalkFault::address_width:
      return IommuFaultReason::address_width;
    case WalkFault::not_present:
      return IommuFaultReason::not_present;
    case WalkFault::read_permission:
      return IommuFaultReason::read_permission;
    case WalkFault::write_permission:
      return IommuFaultReason::write_permission;
    case WalkFault::malformed_entry:
      return IommuFaultReason::malformed_entry;
    case WalkFault::table_access:
      return IommuFaultReason::table_access;
  }
  return IommuFaultReason::table_access;
}

}  // namespace

const char* name(IommuFaultReason reason) {
  switch (reason) {
    case IommuFaultReason::none:
      return "none";
    case IommuFaultReason::no_domain:
      return "requester has no domain";
    case IommuFaultReason::blocked:
      return "domain is blocked";
    case IommuFaultReason::address_width:
      return "address beyond the translatable width";
    case IommuFaultReason::not_present:
      return "page not present";
    case IommuFaultReason::read_permission:
      return "no read permission";
    case IommuFaultReason::write_permission:
      return "no write permission";
    case IommuFaultReason::malformed_entry:
      return "malformed page-table entry";
    case IommuFaultReason::table_access:
      return "page table not in memory";
  }
  return "?";
}

Iommu::Iommu(PageTableMemory& memory, const Config& config)
    : memory_(memory), config_(config), domain_of_(requester_ids), domains_(1) {
  if (config.fault_records < 1 || config.fault_records > 65536) {
    throw Error(fmt::format("fault_records is {}", config.fault_records), "give 1 to 65536");
  }
  // The table's own check of its configuration, now and not at the first domain.
  static_cast<void>(PageTable(memory, config.table));
  faults_.resize(config.fault_records);
}

Iommu::Domain* Iommu::find(DomainId domain) {
  return domain.value < domains_.size() && domains_[domain.value].table ? &domains_[domain.value] : nullptr;
}

bool Iommu::exists(DomainId domain) const {
  return domain.value < domains_.size() && domains_[domain.value].table != nullptr;
}

DomainMode Iommu::mode(DomainId domain) const {
  return domains_.at(domain.value).mode;
}
std::uint64_t Iommu::generation(DomainId domain) const {
  return domains_.at(domain.value).generation;
}
const PageTable& Iommu::table(DomainId domain) const {
  return *domains_.at(domain.value).table;
}

std::optional<DomainId> Iommu::create_domain(DomainMode mode) {
  DomainId id;
  if (!free_ids_.empty()) {
    id.value = free_ids_.back();
    free_ids_.pop_back();
  } else if (domains_.size() < requester_ids) {
    id.value = static_cast<std::uint16_t>(domains_.size());
    domains_.emplace_back();
  } else {
    return std::nullopt;
  }
  Domain& domain = domains_[id.value];
  domain.table = std::make_unique<PageTable>(memory_, config_.table);
  domain.mode = mode;
  ++domain_count_;
  return id;
}

bool Iommu::destroy_domain(DomainId id) {
  Domain* domain = find(id);
  if (domain == nullptr) {
    return false;
  }
  std::replace(domain_of_.begin(), domain_of_.end(), id, DomainId{});
  domain->table.reset();
  domain->mode = DomainMode::blocked;
  ++domain->generation;
  --domain_count_;
  free_ids_.push_back(id.value);
  return true;
}

bool Iommu::set_mode(DomainId id, DomainMode mode) {
  Domain* domain = find(id);
  if (domain == nullptr) {
    return false;
  }
  if (domain->mode != mode) {
    domain->mode = mode;
    ++domain->generation;
  }
  return true;
}

bool Iommu::attach(Bdf requester, DomainId domain) {
  if (!exists(domain)) {
    return false;
  }
  domain_of_[requester.value] = domain;
  return true;
}

PageTableStatus Iommu::map(DomainId id, Iova iova, Hpa hpa, std::uint64_t size, DmaAccess access) {
  Domain* domain = find(id);
  return domain == nullptr ? PageTableStatus::invalid : domain->table->map(iova, hpa, size, access);
}

PageTableStatus Iommu::unmap(DomainId id, Iova iova, std::uint64_t size, std::uint64_t* unmapped) {
  Domain* domain = find(id);
  if (domain == nullptr) {
    return PageTableStatus::invalid;
  }
  std::uint64_t bytes = 0;
  const PageTableStatus status = domain->table->unmap(iova, size, &bytes);
  if (bytes != 0) {
    ++domain->generation;
  }
  if (unmapped != nullptr) {
    *unmapped += bytes;
  }
  return status;
}

Translation Iommu::probe(const TranslationRequest& request) const {
  Translation result;
  result.domain = domain_of_[request.requester.value];
  if (!result.domain.valid()) [[unlikely]] {
    result.fault = IommuFaultReason::no_domain;
    return result;
  }
  const Domain& domain = domains_[result.domain.value];
  switch (domain.mode) {
    case DomainMode::translated: {
      const WalkResult walk = domain.table->walk(request.address, request.length, request.direction);
      result.address = walk.address;
      result.bytes = walk.bytes;
      result.fault = reason_of(walk.fault);
      result.steps = walk.steps;
      result.page_shift = walk.page_shift;
      result.readable = walk.readable;
      result.writable = walk.writable;
      break;
    }
    case DomainMode::passthrough: {
      const std::uint64_t end = std::uint64_t{1} << config_.table.host_address_bits;
      if (request.address.value >= end) [[unlikely]] {
        result.fault = IommuFaultReason::address_width;
        break;
      }
      result.address = Hpa{request.address.value};
      result.bytes = std::clamp<std::uint64_t>(request.length, 1, end - request.address.value);
      result.readable = true;
      result.writable = true;
      break;
    }
    case DomainMode::blocked:
      result.fault = IommuFaultReason::blocked;
      break;
  }
  return result;
}

void Iommu::record(const TranslationRequest& request, const Translation& result) {
  ++fault_total_;
  const IommuFault fault{.requester = request.requester,
                         .domain = result.domain,
                         .address = request.address,
                         .direction = request.direction,
                         .reason = result.fault,
                         .time = request.now};
  if (fault_count_ < faults_.size()) {
    faults_[(fault_head_ + fault_count_) % faults_.size()] = fault;
    ++fault_count_;
  } else {
    fault_overflow_ = true;
  }
  if (observer_ != nullptr) {
    observer_->on_iommu_fault(fault);
  }
}

std::optional<IommuFault> Iommu::take_fault() {
  if (fault_count_ == 0) {
    return std::nullopt;
  }
  const IommuFault fault = faults_[fault_head_];
  fault_head_ = static_cast<std::uint32_t>((fault_head_ + 1) % faults_.size());
  --fault_count_;
  return fault;
}

}  // namespace orrery::pcie
