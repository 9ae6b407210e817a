/* What the build and the machine give to threads: the only place that knows whether OpenMP is there. Without it
   everything runs on one thread. */
#ifndef CONVT_OPENMP_H
#define CONVT_OPENMP_H

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

#ifdef __linux__
#include <sched.h>
#endif

/* Processors that the calling thread may run on now, 0 if unknown. Not omp_get_num_procs: LLVM's OpenMP reads the
   affinity once, when it starts. */
static inline int convt_processors(void)
{
#ifdef __linux__
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
#else
    return 0;
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
