// Wraps the Verilated DMA engine: turns its clock, moves its bus channels' words by DMA, its registers by BAR0.
//
// The clock only runs while the engine is busy or its registers are accessed. In timed mode every cycle takes
// `cycle_ps` of simulated time; cycles of register accesses are annotated, and the clock makes up for them. In
// functional mode the clock runs as fast as the host, and stands while only a DMA can help.
#include "Vverilog_dma.h"  // before SystemC: Verilator's headers change with it, their other users don't have it

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include "systemc_models/plugin/dma_call.h"
#include "systemc_models/plugin/tlm_device.h"
#include "verilog_dma_registers.h"

namespace {

class VerilogDma final : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<VerilogDma> registers{"registers"};
  tlm_utils::simple_initiator_socket<VerilogDma> reader{"reader"};
  tlm_utils::simple_initiator_socket<VerilogDma> writer{"writer"};
  sc_core::sc_out<bool> interrupt{"interrupt"};

  SC_HAS_PROCESS(VerilogDma);
  VerilogDma(const sc_core::sc_module_name& name, sc_core::sc_time period, bool timed)
      : sc_module(name), period_(period), timed_(timed) {
    registers.register_b_transport(this, &VerilogDma::access);
    SC_THREAD(run_clock);
    SC_THREAD(run_reads);
    SC_THREAD(run_writes);
  }
  ~VerilogDma() override { rtl_.final(); }

  void reset() {
    ++run_;  // what the DMA threads are doing is for nobody
    reads_.clear();
    words_.clear();
    burst_ = {};
    writes_.clear();
    responses_.clear();
    rtl_.rst = 1;
    cycle();
    rtl_.rst = 0;
    ahead_ = 0;
    dma_ended_.notify(sc_core::SC_ZERO_TIME);
  }

 private:
  struct Read {
    std::uint64_t address;
    unsigned words;
  };
  struct Word {
    std::uint64_t data;
    bool error;
  };
  struct Burst {
    std::uint64_t address = 0;
    std::vector<unsigned char> bytes;
    bool final = false;
  };

  // One clock cycle; true if a word or a request passed one of the channels.
  bool cycle() {
    rtl_.rd_ready = 1;
    rtl_.wr_ready = 1;
    rtl_.rd_data_valid = !words_.empty();
    rtl_.rd_data = words_.empty() ? 0 : words_.front().data;
    rtl_.rd_error = !words_.empty() && words_.front().error;
    rtl_.wr_resp_valid = !responses_.empty();
    rtl_.wr_error = !responses_.empty() && !responses_.front();
    rtl_.clk = 0;
    rtl_.eval();
    // What the engine offers before the edge is what the edge takes.
    bool moved = rtl_.wr_resp_valid != 0;
    if (rtl_.rd_valid && !rtl_.rst) {
      reads_.push_back({rtl_.rd_addr, rtl_.rd_words});
      read_wanted_.notify(sc_core::SC_ZERO_TIME);
      moved = true;
    }
    if (rtl_.rd_data_valid && rtl_.rd_data_ready) {
      words_.pop_front();
      moved = true;
    }
    if (rtl_.wr_valid && !rtl_.rst) {
      take_word();
      moved = true;
    }
    if (rtl_.wr_resp_valid) {
      responses_.pop_front();
    }
    rtl_.clk = 1;
    rtl_.eval();
    interrupt.write(rtl_.irq != 0);
    return moved;
  }

  void take_word() {
    if (burst_.bytes.empty()) {
      burst_.address = rtl_.wr_addr;
    }
    const std::uint64_t data = rtl_.wr_data;
    for (unsigned i = 0; i < 8 && ((rtl_.wr_strb >> i) & 1) != 0; ++i) {
      burst_.bytes.push_back(static_cast<unsigned char>(data >> (8 * i)));
    }
    if (rtl_.wr_last) {
      burst_.final = rtl_.wr_final;
      writes_.push_back(std::move(burst_));
      burst_ = {};
      write_wanted_.notify(sc_core::SC_ZERO_TIME);
    }
  }

  void access(tlm::tlm_generic_payload& payload, sc_core::sc_time& delay) {
    if (payload.get_data_length() != 4 || payload.get_address() > 0xff) {
      payload.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
      return;
    }
    rtl_.reg_addr = static_cast<unsigned char>(payload.get_address());
    if (payload.is_write()) {
      std::memcpy(&rtl_.reg_wdata, payload.get_data_ptr(), 4);
      rtl_.reg_write = 1;
      cycle();
      rtl_.reg_write = 0;
    } else {
      cycle();
      std::memcpy(payload.get_data_ptr(), &rtl_.reg_rdata, 4);
    }
    delay += period_;
    ahead_ += rtl_.busy ? 1 : 0;
    if (rtl_.busy) {
      started_.notify(sc_core::SC_ZERO_TIME);
    }
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
  }

  void run_clock() {
    while (true) {
      while (!rtl_.busy) {
        ahead_ = 0;
        wait(started_);
      }
      const bool moved = cycle();
      if (timed_) {
        const unsigned cycles = 1 + std::exchange(ahead_, 0);  // accesses during the wait add to the next one
        wait(cycles * period_);
      } else if (!moved && words_.empty() && responses_.empty() && (!reads_.empty() || !writes_.empty())) {
        wait(dma_ended_);
      }
    }
  }

  // Each request stays at the head of its queue until it is done: the clock sees that it is under way.
  void run_reads() {
    while (true) {
      while (reads_.empty()) {
        wait(read_wanted_);
      }
      const std::uint64_t run = run_;
      const Read read = reads_.front();
      std::uint64_t data[32] = {};
      const bool ok = orrery::models::dma_read(reader, read.address, data, read.words * 8);
      if (run == run_) {
        for (unsigned i = 0; i < read.words; ++i) {
          words_.push_back({data[i], !ok});
        }
        reads_.pop_front();
        dma_ended_.notify(sc_core::SC_ZERO_TIME);
      }
    }
  }

  void run_writes() {
    while (true) {
      while (writes_.empty()) {
        wait(write_wanted_);
      }
      const std::uint64_t run = run_;
      const Burst burst = writes_.front();
      // Writes are posted; the last one of a page, or of all, is followed to its end and speaks for those before.
      const bool confirm = burst.final || ((burst.address + burst.bytes.size()) & 4095U) == 0;
      const bool ok = orrery::models::dma_write(writer, burst.address, burst.bytes.data(),
                                                static_cast<unsigned>(burst.bytes.size()), confirm);
      if (run == run_) {
        responses_.push_back(ok);
        writes_.pop_front();
        dma_ended_.notify(sc_core::SC_ZERO_TIME);
      }
    }
  }

  Vverilog_dma rtl_;
  sc_core::sc_time period_;
  bool timed_;
  unsigned ahead_ = 0;     // cycles that register accesses have run before their time
  std::uint64_t run_ = 0;  // counts resets
  std::deque<Read> reads_;
  std::deque<Word> words_;  // read, on their way to the engine
  Burst burst_;             // being collected
  std::deque<Burst> writes_;
  std::deque<bool> responses_;
  sc_core::sc_event started_, read_wanted_, write_wanted_, dma_ended_;
};

std::unique_ptr<sc_core::sc_module> create(orrery::models::TlmSlot& slot) {
  slot.function.identity.vendor_id = VERILOG_DMA_VENDOR_ID;
  slot.function.identity.device_id = VERILOG_DMA_DEVICE_ID;
  slot.function.identity.class_code = 0x08'0100;  // DMA controller
  slot.function.bars[0] = {.size = 4096, .max_access = 4};
  slot.function.msix_vectors = 1;
  const std::uint64_t period = slot.parameters.integer("cycle_ps", 4000, 100, 1'000'000);
  auto device = std::make_unique<VerilogDma>(slot.module_name(), sc_core::sc_time::from_value(period), slot.timed());
  slot.bind_bar(0, device->registers);
  slot.bind_dma(device->reader);
  slot.bind_dma(device->writer);
  device->interrupt.bind(slot.irq(0));
  slot.on_reset([model = device.get()] { model->reset(); });
  return device;
}

}  // namespace

ORRERY_TLM_DEVICE("DMA engine in Verilog", create)
