#include "qemu_bridge/launcher/libvirt_xml.h"

#include <fmt/format.h>

#include <sstream>

#include "common/error.h"
#include "qemu_bridge/launcher/pci_placement.h"
#include "qemu_bridge/launcher/qemu_command_line.h"

namespace orrery::bridge {

namespace {

class Xml {
 public:
  void line(std::string_view text) { out_ += std::string(2 * depth_, ' ').append(text) += '\n'; }
  void open(std::string_view tag, std::string_view attributes = {}) {
    line(fmt::format("<{}{}{}>", tag, attributes.empty() ? "" : " ", attributes));
    ++depth_;
  }
  void close(std::string_view tag) {
    --depth_;
    line(fmt::format("</{}>", tag));
  }
  void text(std::string_view tag, const std::string& content, std::string_view attributes = {}) {
    line(fmt::format("<{}{}{}>{}</{}>", tag, attributes.empty() ? "" : " ", attributes, xml_escape(content), tag));
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string out_;
  std::size_t depth_ = 0;
};

// "EPYC,a=off,b=off" as libvirt's model with its features.
void add_cpu(Xml& xml, const GuestSpec& spec) {
  const std::string model = spec.cpu_model.empty() ? default_cpu_model(spec.accelerator) : spec.cpu_model;
  std::istringstream parts(model);
  std::string name;
  std::getline(parts, name, ',');
  if (name == "host") {
    xml.open("cpu", "mode='host-passthrough'");
  } else if (name == "max") {
    xml.open("cpu", "mode='maximum'");
  } else {
    xml.open("cpu", "mode='custom' match='exact' check='none'");
    xml.text("model", name, "fallback='forbid'");
  }
  const unsigned nodes = spec.numa_nodes;
  const unsigned sockets = spec.cpus % nodes == 0 ? nodes : spec.cpus;
  xml.line(fmt::format("<topology sockets='{}' cores='{}' threads='1'/>", sockets, spec.cpus / sockets));
  for (std::string feature; std::getline(parts, feature, ',');) {
    const auto equals = feature.find('=');
    const bool off = equals != std::string::npos && feature.substr(equals + 1) == "off";
    // libvirt spells this one with an underscore.
    std::string spelt = feature.substr(0, equals);
    if (spelt == "fxsr-opt") {
      spelt = "fxsr_opt";
    }
    xml.line(fmt::format("<feature policy='{}' name='{}'/>", off ? "disable" : "require", xml_escape(spelt)));
  }
  xml.open("numa");
  unsigned first_cpu = 0;
  unsigned assigned_mib = 0;
  for (unsigned node = 0; node < nodes; ++node) {
    const unsigned mib = (spec.memory_mib - assigned_mib) / (nodes - node);
    assigned_mib += mib;
    const unsigned cpus = (spec.cpus - first_cpu + (nodes - node) - 1) / (nodes - node);
    const std::string cpu_list = cpus == 0 ? "" : fmt::format(" cpus='{}-{}'", first_cpu, first_cpu + cpus - 1);
    xml.line(fmt::format("<cell id='{}'{} memory='{}' unit='MiB' memAccess='shared'/>", node, cpu_list, mib));
    first_cpu += cpus;
  }
  xml.close("numa");
  xml.close("cpu");
}

void add_boot(Xml& xml, const GuestSpec& spec, const QemuInstallation& qemu) {
  xml.open("os");
  xml.text("type", "hvm", "arch='x86_64' machine='q35'");
  if (spec.firmware == Firmware::ovmf) {
    xml.text("loader", qemu.ovmf_code, "readonly='yes' type='pflash'");
    xml.line(fmt::format("<nvram template='{}'/>", xml_escape(qemu.ovmf_vars)));
  }
  if (!spec.kernel.empty()) {
    xml.text("kernel", spec.kernel);
    if (!spec.initrd.empty()) {
      xml.text("initrd", spec.initrd);
    }
    xml.text("cmdline", kernel_command_line(spec));
  } else {
    xml.line("<boot dev='hd'/>");
  }
  xml.close("os");
}

void add_devices(Xml& xml, const GuestSpec& spec, const QemuInstallation& qemu) {
  xml.open("devices");
  xml.text("emulator", qemu.program);
  if (spec.disk) {
    xml.open("disk", "type='file' device='disk'");
    xml.line(fmt::format("<driver name='qemu' type='{}'/>", xml_escape(spec.disk->format)));
    xml.line(fmt::format("<source file='{}'/>", xml_escape(spec.disk->path)));
    xml.line("<target dev='vda' bus='virtio'/>");
    if (spec.disk->mode == DiskMode::throw_away) {
      xml.line("<transient/>");
    }
    xml.close("disk");
  }
  if (spec.share) {
    xml.open("filesystem", "type='mount' accessmode='passthrough'");
    xml.line("<driver type='virtiofs'/>");
    if (!qemu.virtiofsd.empty()) {
      xml.line(fmt::format("<binary path='{}'/>", xml_escape(qemu.virtiofsd)));
    }
    xml.line(fmt::format("<source dir='{}'/>", xml_escape(spec.share->directory)));
    xml.line(fmt::format("<target dir='{}'/>", xml_escape(spec.share->tag)));
    if (spec.share->read_only) {
      xml.line("<readonly/>");
    }
    xml.close("filesystem");
  }
  if (spec.network == GuestNetwork::user) {
    xml.open("interface", "type='user'");
    xml.line("<mac address='52:54:00:12:34:56'/>");
    xml.line("<model type='virtio'/>");
    xml.close("interface");
  }
  xml.line("<serial type='pty'><target type='isa-serial' port='0'/></serial>");
  xml.line("<console type='pty'><target type='serial' port='0'/></console>");
  if (spec.agent) {
    xml.line("<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>");
  }
  xml.line("<memballoon model='none'/>");
  if (spec.viommu == VirtualIommu::intel) {
    xml.line("<iommu model='intel'><driver intremap='on' caching_mode='on'/></iommu>");
  }
  xml.close("devices");
}

// The part of QEMU's own arguments that libvirt has no element for.
std::vector<std::string> passed_through(const GuestSpec& spec, const GuestTopology& topology,
                                        const QemuInstallation& qemu) {
  std::vector<std::string> passed;
  if (!qemu.data_directory.empty()) {
    passed = {"-L", qemu.data_directory};
  }
  const std::vector<std::string> globals = topology_global_arguments(spec, topology);
  const std::vector<std::string> devices = topology_device_arguments(spec, topology);
  passed.insert(passed.end(), globals.begin(), globals.end());
  if (!spec.ssh_key_file.empty()) {
    passed.insert(passed.end(),
                  {"-fw_cfg", fmt::format("name=opt/org.orrery/ssh-key,file={}", escape_commas(spec.ssh_key_file))});
  }
  passed.insert(passed.end(), devices.begin(), devices.end());
  passed.insert(passed.end(), spec.extra_arguments.begin(), spec.extra_arguments.end());
  return passed;
}

}  // namespace

std::string xml_escape(const std::string& text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '\'':
        escaped += "&apos;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // Line ends and tabs are legal in XML, but an attribute turns them into blanks.
        if (static_cast<unsigned char>(c) < 0x20) {
          throw Error(fmt::format("libvirt XML: a value contains the control character {:#04x}", static_cast<int>(c)),
                      "use names and paths without control characters");
        }
        escaped += c;
    }
  }
  return escaped;
}

std::string libvirt_domain_xml(const GuestSpec& spec, const GuestTopology& topology, const QemuInstallation& qemu) {
  validate_guest(spec, topology, qemu);
  const bool kvm = spec.accelerator == Accelerator::kvm;
  Xml xml;
  xml.open("domain",
           fmt::format("type='{}' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'", kvm ? "kvm" : "qemu"));
  xml.text("name", spec.name);
  xml.text("memory", std::to_string(spec.memory_mib), "unit='MiB'");
  // vfio-user servers map guest memory: it must be a file that both sides can map.
  xml.line("<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>");
  xml.text("vcpu", std::to_string(spec.cpus), "placement='static'");
  add_boot(xml, spec, qemu);
  xml.open("features");
  xml.line("<acpi/>");
  xml.line("<apic/>");
  if (kvm && spec.viommu == VirtualIommu::intel) {
    xml.line("<ioapic driver='qemu'/>");
  }
  xml.close("features");
  add_cpu(xml, spec);
  xml.text("on_poweroff", "destroy");
  xml.text("on_reboot", spec.reboot_ends ? "destroy" : "restart");
  xml.text("on_crash", "destroy");
  add_devices(xml, spec, qemu);
  xml.open("qemu:commandline");
  for (const std::string& argument : passed_through(spec, topology, qemu)) {
    xml.line(fmt::format("<qemu:arg value='{}'/>", xml_escape(argument)));
  }
  xml.close("qemu:commandline");
  xml.close("domain");
  return xml.take();
}

}  // namespace orrery::bridge
