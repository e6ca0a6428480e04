// A DMA engine: copies LENGTH bytes from SOURCE to DESTINATION over a 64-bit bus.
//
// Both addresses are multiples of 8. Reads are requested in bursts that end at multiples of 256 bytes, as far as
// the FIFO has room; writes leave in bursts that end at multiples of 256 bytes of the destination, each as soon as
// all of its words are there. A burst that has begun always ends, also after an error.
// The registers are those of verilog_dma_registers.h.
module verilog_dma (
    input  wire        clk,
    input  wire        rst,             // synchronous

    // Register port: reading is combinational, a write takes one cycle.
    input  wire        reg_write,
    input  wire [7:0]  reg_addr,
    input  wire [31:0] reg_wdata,
    output reg  [31:0] reg_rdata,

    // Read requests: rd_words words of 8 bytes from rd_addr.
    output wire        rd_valid,
    input  wire        rd_ready,
    output wire [63:0] rd_addr,
    output wire [5:0]  rd_words,
    // Their data, in the order of the requests.
    input  wire        rd_data_valid,
    output wire        rd_data_ready,
    input  wire [63:0] rd_data,
    input  wire        rd_error,

    // Write data; wr_last ends a burst, wr_final the last burst of the copy.
    output wire        wr_valid,
    input  wire        wr_ready,
    output wire [63:0] wr_addr,
    output wire [63:0] wr_data,
    output wire [7:0]  wr_strb,
    output wire        wr_last,
    output wire        wr_final,
    // One response a burst.
    input  wire        wr_resp_valid,
    input  wire        wr_error,

    output wire        busy,
    output wire        irq
);
  localparam [31:0] ID = 32'h414d4456;  // "VDMA" in memory

  reg [63:0] source, destination;
  reg [31:0] length, bytes_written, cycles;
  reg        running, done, failed, misaligned;

  // ---- FIFO of 64 words. `reserved` counts words asked for and not yet written out.
  reg [63:0] fifo [0:63];
  reg [5:0]  head, tail;
  reg [6:0]  level, reserved;

  // ---- Read side
  reg [63:0] read_at;
  reg [29:0] read_left;                 // words to ask for
  reg [6:0]  read_pending;              // words asked for and not yet arrived
  wire [5:0] read_room = 6'd32 - {1'b0, read_at[7:3]};
  assign rd_words = (read_left < {24'd0, read_room}) ? read_left[5:0] : read_room;
  assign rd_addr = read_at;
  assign rd_valid = running && !failed && read_left != 0 && ({1'b0, reserved} + {2'b0, rd_words} <= 8'd64);
  assign rd_data_ready = 1'b1;          // there is room for all that was asked for
  wire ask = rd_valid && rd_ready;
  wire arrive = rd_data_valid && rd_data_ready;
  wire push = arrive && !failed;

  // ---- Write side
  reg [63:0] write_at;
  reg [29:0] write_left;                // words to write
  reg        writing;                   // a burst is under way
  reg [5:0]  burst_left;
  reg [31:0] responses_due;
  wire [5:0] write_room = 6'd32 - {1'b0, write_at[7:3]};
  wire [5:0] burst = (write_left < {24'd0, write_room}) ? write_left[5:0] : write_room;
  wire final_word = write_left == 30'd1;
  wire [3:0] final_bytes = (length[2:0] == 3'd0) ? 4'd8 : {1'b0, length[2:0]};
  assign wr_valid = writing;
  assign wr_addr = write_at;
  assign wr_data = fifo[head];
  assign wr_last = burst_left == 6'd1;
  assign wr_final = final_word;
  assign wr_strb = final_word ? (8'hff >> (4'd8 - final_bytes)) : 8'hff;
  wire pop = wr_valid && wr_ready;

  assign busy = running;
  assign irq = done;

  wire start = reg_write && reg_addr == 8'h1c && reg_wdata[0] && !running;
  wire setup = reg_write && !running;
  wire drained = read_pending == 0 && !writing && responses_due == 0;

  always @(*) begin
    case (reg_addr)
      8'h00: reg_rdata = ID;
      8'h08: reg_rdata = source[31:0];
      8'h0c: reg_rdata = source[63:32];
      8'h10: reg_rdata = destination[31:0];
      8'h14: reg_rdata = destination[63:32];
      8'h18: reg_rdata = length;
      8'h20: reg_rdata = {28'd0, misaligned, failed, done, running};
      8'h24: reg_rdata = bytes_written;
      8'h28: reg_rdata = cycles;
      default: reg_rdata = 32'd0;
    endcase
  end

  always @(posedge clk) begin
    if (rst) begin
      source <= 0; destination <= 0; length <= 0; bytes_written <= 0; cycles <= 0;
      running <= 0; done <= 0; failed <= 0; misaligned <= 0;
      head <= 0; tail <= 0; level <= 0; reserved <= 0;
      read_at <= 0; read_left <= 0; read_pending <= 0;
      write_at <= 0; write_left <= 0; writing <= 0; burst_left <= 0; responses_due <= 0;
    end else begin
      if (setup) begin
        case (reg_addr)
          8'h08: source[31:0] <= reg_wdata;
          8'h0c: source[63:32] <= reg_wdata;
          8'h10: destination[31:0] <= reg_wdata;
          8'h14: destination[63:32] <= reg_wdata;
          8'h18: length <= reg_wdata;
          default: ;
        endcase
      end
      if (start) begin
        running <= 1; done <= 0; failed <= (source[2:0] | destination[2:0]) != 0;
        misaligned <= (source[2:0] | destination[2:0]) != 0;
        bytes_written <= 0; cycles <= 0;
        head <= 0; tail <= 0; level <= 0; reserved <= 0;
        read_at <= source; write_at <= destination;
        read_left <= {1'b0, length[31:3]} + {29'd0, |length[2:0]};
        write_left <= {1'b0, length[31:3]} + {29'd0, |length[2:0]};
      end else if (running) begin
        cycles <= cycles + 1;
        if (ask) begin
          read_at <= read_at + {55'd0, rd_words, 3'd0};
          read_left <= read_left - {24'd0, rd_words};
        end
        if (push) begin
          fifo[tail] <= rd_data;
          tail <= tail + 1;
        end
        if ((arrive && rd_error) || (wr_resp_valid && wr_error)) failed <= 1;
        read_pending <= read_pending + (ask ? {1'b0, rd_words} : 7'd0) - {6'd0, arrive};

        if (pop) begin
          head <= head + 1;
          write_at <= write_at + 8;
          write_left <= write_left - 1;
          burst_left <= burst_left - 1;
          bytes_written <= bytes_written + (final_word ? {28'd0, final_bytes} : 32'd8);
          if (wr_last) writing <= 0;
        end else if (!writing && !failed && write_left != 0 && level >= {1'b0, burst}) begin
          writing <= 1;
          burst_left <= burst;
        end
        level <= level + {6'd0, push} - {6'd0, pop};
        reserved <= reserved + (ask ? {1'b0, rd_words} : 7'd0) - {6'd0, pop};
        responses_due <= responses_due + {31'd0, pop && wr_last} - {31'd0, wr_resp_valid};

        if (drained && (failed || write_left == 0)) begin
          running <= 0;
          done <= 1;
        end
      end
    end
  end
endmodule
