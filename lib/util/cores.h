/* Cores that this process may run on: its affinity, which batch systems and control groups narrow. */
#ifndef DLB_UTIL_CORES_H
#define DLB_UTIL_CORES_H
#include <stdint.h>
/* Their number; 1 where it is not told. */
int dlb_cores(void);
/* The system's number of the nth of them, from 0; -1: there is none, or it is not told. */
int dlb_core(int nth);

/* Sets of cores by the system's numbers, 0 to 1023; they can be sent. */
struct dlb_core_set { uint64_t word[16]; };
/* Those of this process; empty where they are not told. */
struct dlb_core_set dlb_core_set_own(void);
void dlb_core_set_add(struct dlb_core_set *s, const struct dlb_core_set *other);
int dlb_core_set_count(const struct dlb_core_set *s);
#endif
