// Declarations for CUDAContext.h; README.md in this folder says why they exist.
#pragma once
typedef struct cublasContext *cublasHandle_t;
enum cublasStatus_t : unsigned;
