# Reset and traps. One hart in machine mode, interrupts disabled for good: an interrupt only ends `wfi`.
    .section .text.start, "ax"
    .globl _start
_start:
    csrw mie, zero
    csrw mip, zero
    csrr t0, mhartid
    bnez t0, park
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    la sp, __stack_end
    la t0, trap
    csrw mtvec, t0
    la t0, __bss_start
    la t1, __bss_end
1:  bgeu t0, t1, 2f
    sd zero, 0(t0)
    addi t0, t0, 8
    j 1b
2:  call firmware_main

    .globl park
    .balign 4
park:
    wfi
    j park

# Every trap is a fault of the firmware. The registers of that moment go to trap_frame; a trap inside the handler parks.
    .balign 4
trap:
    csrw mscratch, t0
    la t0, park
    csrw mtvec, t0
    la t0, trap_frame
    sd ra, 8(t0)
    sd sp, 16(t0)
    sd gp, 24(t0)
    sd tp, 32(t0)
    sd t1, 48(t0)
    sd t2, 56(t0)
    sd s0, 64(t0)
    sd s1, 72(t0)
    sd a0, 80(t0)
    sd a1, 88(t0)
    sd a2, 96(t0)
    sd a3, 104(t0)
    sd a4, 112(t0)
    sd a5, 120(t0)
    sd a6, 128(t0)
    sd a7, 136(t0)
    csrr t1, mscratch
    sd t1, 40(t0)
    la sp, __trap_stack_end
    csrr a0, mcause
    csrr a1, mepc
    csrr a2, mtval
    mv a3, t0
    call firmware_trap
    j park
