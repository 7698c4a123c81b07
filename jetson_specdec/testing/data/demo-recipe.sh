# Chat server on a Jetson AGX Thor: the sample of `jetson-specdec demo`
docker run --rm --runtime nvidia --network host --ipc host --name chat \
  -v "$HOME/.cache/huggingface:/root/.cache/huggingface" \
  vllm/vllm-openai:v0.32.0 \
  --model nvidia/Llama-3.1-8B-Instruct-NVFP4 \
  --max-model-len 8192 \
  --max-num-seqs 8 \
  --gpu-memory-utilization 0.75   # the desktop needs the rest
