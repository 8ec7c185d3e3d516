// Declarations for CUDAContext.h; README.md in this folder says why they exist.
#pragma once
typedef struct cusolverDnContext *cusolverDnHandle_t;
