// Declarations for ProcessGroupNCCL.hpp, of NCCL 2.28; README.md in this folder says why they exist.
#pragma once
#include <climits>
#include <cstddef>

#include <cuda_runtime_api.h>

// As with CUDA's cuda_bf16.h: NCCLUtils.hpp then has a type for bf16.
#define __CUDA_BF16_TYPES_EXIST__

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)
#define NCCL_SPLIT_NOCOLOR -1

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

typedef enum {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress
} ncclResult_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;
typedef enum {
  ncclInt8,
  ncclUint8,
  ncclInt32,
  ncclUint32,
  ncclInt64,
  ncclUint64,
  ncclHalf,
  ncclFloat,
  ncclDouble,
  ncclBfloat16,
  ncclFloat8e4m3,
  ncclFloat8e5m2
} ncclDataType_t;

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;

// What a caller does not set has these values.
#define NCCL_CONFIG_INITIALIZER                                                                                       \
  {                                                                                                                   \
    sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, INT_MIN, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN, INT_MIN,   \
        NULL, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN                                                      \
  }

extern "C" ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t communicator);
