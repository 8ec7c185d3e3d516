#!/bin/sh
# Compiles libcanonc_nccl.so, with which ranks exchange tensors between GPUs.
#   nccl.sh TORCH OUT    TORCH: the folder of a CUDA build of PyTorch 2.11 (it has lib/ and include/); OUT: a folder
# The headers of CUDA and NCCL are those of TORCH's neighbours in site-packages (nvidia/), or in CUDA_HOME and NCCL_HOME.
# Put the library beside canonc-torch, or name it in CANONC_NCCL.
set -eu
torch=$1 out=$2
here=$(dirname "$0")
packages=$torch/../nvidia
set --
for folder in "$packages/cu13/include" "$packages/nccl/include" "${CUDA_HOME:-/usr/local/cuda}/include" \
  ${NCCL_HOME:+"$NCCL_HOME/include"}; do
  if [ -d "$folder" ]; then set -- "$@" -isystem "$folder"; fi
done
test -f "$torch/lib/libtorch_cuda.so" || { echo "error: $torch/lib has no libtorch_cuda.so" >&2; exit 2; }
"${CXX:-c++}" -std=c++17 -O2 -fPIC -shared -w -D_GLIBCXX_USE_CXX11_ABI=1 -isystem "$torch/include" \
  -isystem "$torch/include/torch/csrc/api/include" "$@" "$here/nccl.cpp" -o "$out/libcanonc_nccl.so" \
  -L "$torch/lib" -ltorch_cuda -ltorch_cpu -lc10 -lc10_cuda
