// Declarations for CUDAContext.h; README.md in this folder says why they exist.
#pragma once
typedef struct cusparseContext *cusparseHandle_t;
enum cusparseStatus_t : unsigned;
