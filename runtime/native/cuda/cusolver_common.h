// Declarations for CUDAContext.h; README.md in this folder says why they exist.
#pragma once
enum cusolverStatus_t : unsigned;
