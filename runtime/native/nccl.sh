#!/bin/sh
# Compiles libcanonc_nccl.so, with which ranks exchange tensors between GPUs. Needs no GPU.
#   nccl.sh TORCH OUT    TORCH: the folder of any build of PyTorch 2.11 (it has lib/ and include/); OUT: a folder
# Put the library beside canonc-torch, or name it in CANONC_NCCL.
set -eu
torch=$1 out=$2
here=$(dirname "$0")
compiler=${CXX:-c++}
# A PyTorch for CPUs lacks the libraries for CUDA, so the linker gets empty ones of their names.
names=$(mktemp -d)
trap 'rm -rf "$names"' EXIT
for name in libtorch_cuda.so libc10_cuda.so; do
  "$compiler" -shared -nostdlib -x c /dev/null -Wl,-soname,$name -o "$names/$name"
done
# CXXFLAGS: tools/packaging/binaries.sh replaces folders of this machine in the texts of assertions.
"$compiler" -std=c++17 -O2 -fPIC -shared -w -D_GLIBCXX_USE_CXX11_ABI=1 ${CXXFLAGS:-} -isystem "$torch/include" \
  -isystem "$torch/include/torch/csrc/api/include" -isystem "$here/cuda" "$here/nccl.cpp" -o "$out/libcanonc_nccl.so" \
  -L "$names" -L "$torch/lib" -Wl,--no-as-needed -ltorch_cuda -ltorch_cpu -lc10 -lc10_cuda
