#!/bin/sh
# Emits a set of kernels as CUDA C++ and compiles them ahead of time; any warning is an error.
# Usage: NVCC=path/to/nvcc scripts/cuda_check/build.sh OUT_DIR [ARCH..]   (default: sm_80 sm_90a)
# nvcc comes from a CUDA toolkit or from PyPI: pip install nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 \
#   nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.88
set -eu
out=$1
shift
[ $# -gt 0 ] || set -- sm_80 sm_90a
nvcc=${NVCC:-nvcc}
cargo run -q -p iron-conformance --example cuda_check -- "$out"
for arch in "$@"; do
    mkdir -p "$out/$arch"
    for text in "$out"/*.cu; do
        name=$(basename "$text" .cu)
        cubin=$out/$arch/$name.cubin
        if [ -f "$cubin" ] && [ "$cubin" -nt "$text" ] && [ "$cubin" -nt "$out/iron_tile.cuh" ]; then continue; fi
        "$nvcc" -cubin -arch="$arch" -std=c++17 -O3 --fmad=false -Werror all-warnings -Xptxas -v \
            "$text" -o "$cubin" 2> "$out/$arch/$name.log" || { cat "$out/$arch/$name.log"; exit 1; }
    done
    echo "$arch: $(ls "$out/$arch"/*.cubin | wc -l) cubins, spilling: $(grep -L ' 0 bytes spill stores' "$out/$arch"/*.log | wc -l)"
done
