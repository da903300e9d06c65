/* Clocks, in seconds: monotonic wall time and this thread's CPU time. */
#ifndef DLB_UTIL_CLOCK_H
#define DLB_UTIL_CLOCK_H
double dlb_clock_s(void);
double dlb_clock_thread_cpu_s(void);
void dlb_sleep_s(double s);
#endif
