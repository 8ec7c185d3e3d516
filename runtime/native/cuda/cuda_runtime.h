// The C++ half of CUDA's API, of which nothing is used.
#pragma once
#include <cuda_runtime_api.h>
