/* What the build and the machine give to threads, and how these round: the only place that knows whether OpenMP is
   there. Without it everything runs on one thread. */
#ifndef CONVT_MACHINE_H
#define CONVT_MACHINE_H

/* For sched_getaffinity; before the first system header. Python.h has it too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#ifdef _OPENMP
#include <omp.h>
#define CONVT_OPENMP _OPENMP
#else
#define CONVT_OPENMP 0
static inline int omp_get_max_threads(void)
{
    return 1;
}
#endif

#include <stdint.h>
#ifdef __linux__
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* Processors that the calling thread may run on now, 0 if unknown. omp_get_num_procs is asked only where OpenMP binds
   its threads, the caller to one processor: LLVM's OpenMP reads the affinity once, when it starts. */
static inline int convt_processors(void)
{
#ifdef _OPENMP
    if (omp_get_proc_bind() != omp_proc_bind_false)
        return omp_get_num_procs();
#endif
#ifdef __linux__
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
#else
    return 0;
#endif
}

/* A flag of several threads, which orders nothing else. */
static inline void convt_raise_flag(int *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
}

static inline int convt_is_raised(const int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

/* As a process begins: rounded to nearest even, subnormals kept, no traps. Returns what was set. */
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

#if defined(__clang__)
#define CONVT_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define CONVT_COMPILER "gcc " __VERSION__
#else
#define CONVT_COMPILER "unknown"
#endif

#endif
