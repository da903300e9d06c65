/* Rows in registers (row_runs.cuh). */
#ifndef DLB_TENSOR_CUDA_ROW_RUNS_H
#define DLB_TENSOR_CUDA_ROW_RUNS_H
enum { ROW_RUNS = 4 }; /* runs of 16 bytes that a thread has */
#endif
