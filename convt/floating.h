/* How the calling thread rounds, and whether it keeps subnormals. */
#ifndef CONVT_FLOATING_H
#define CONVT_FLOATING_H

#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* As a process begins: rounded to nearest even, subnormals kept, no traps. The caller may have set it otherwise, and
   OpenMP's other threads have what their maker had. Returns what was set. */
static inline uint64_t convt_begin_floating(void)
{
    uint64_t found = 0;
#if defined(__x86_64__)
    found = _mm_getcsr();
    _mm_setcsr(0x1f80);
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(found)::"memory");
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0) : "memory");
#endif
    return found;
}

/* As `convt_begin_floating` found it. */
static inline void convt_end_floating(uint64_t found)
{
#if defined(__x86_64__)
    _mm_setcsr((unsigned)found);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"(found) : "memory");
#else
    (void)found;
#endif
}

#endif
