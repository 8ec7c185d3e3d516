// Declarations for CUDAContext.h; README.md in this folder says why they exist.
#pragma once
typedef struct cublasLtContext *cublasLtHandle_t;
