/* Cores that this process may run on (its affinity; 1 where that is not told). */
#ifndef DLB_UTIL_CORES_H
#define DLB_UTIL_CORES_H
int dlb_cores(void);
/* The system's number of the nth of them, from 0; -1: there is none, or it is not told. */
int dlb_core(int nth);
#endif
