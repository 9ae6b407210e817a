/* The only place that knows whether OpenMP is there. Without it everything runs on one thread. */
#ifndef CONVT_OPENMP_H
#define CONVT_OPENMP_H

#ifdef _OPENMP
#include <omp.h>
#define CONVT_OPENMP _OPENMP
#else
#define CONVT_OPENMP 0
static inline int omp_get_max_threads(void)
{
    return 1;
}
static inline int omp_get_num_procs(void)
{
    return 1;
}
static inline int omp_get_thread_num(void)
{
    return 0;
}
#endif

#if defined(__clang__)
#define CONVT_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define CONVT_COMPILER "gcc " __VERSION__
#else
#define CONVT_COMPILER "unknown"
#endif

#endif
