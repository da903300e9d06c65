/* The cores that this process may run on: its CPU affinity, which batch systems and control groups
 * restrict. */
#ifndef DLB_UTIL_CORES_H
#define DLB_UTIL_CORES_H
#include <stdint.h>
/* Number of these cores; 1 if unknown. */
int dlb_cores(void);

/* A set of cores by the system's numbers, 0 to 1023; it can be sent to another rank. */
struct dlb_core_set { uint64_t word[16]; };
/* The cores of this process; empty if unknown. */
struct dlb_core_set dlb_core_set_own(void);
void dlb_core_set_add(struct dlb_core_set *s, const struct dlb_core_set *other);
int dlb_core_set_count(const struct dlb_core_set *s);
#endif
