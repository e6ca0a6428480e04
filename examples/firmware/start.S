    .section .text.start, "ax"
    .globl _start
_start:
    csrr t0, mhartid
    bnez t0, 1f
    la sp, stack_end
    call acme_main
1:  wfi
    j 1b
