#!/usr/bin/env bash
# AGX Orin on JetPack 6, started by hand
UTIL=0.8
docker run -it --rm --runtime nvidia --network host \
  -v /data/hub:/root/.cache/huggingface \
  ghcr.io/nvidia-ai-iot/vllm:0.14.0-r36.4-tegra-aarch64-cu126-22.04 \
  bash -c "vllm serve Qwen/Qwen3-8B \
    --max-model-len 8192 \
    --max-num-seqs 2 \
    --gpu-memory-utilization $UTIL"
