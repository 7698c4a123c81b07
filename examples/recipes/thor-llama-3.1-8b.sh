# Chat server on a Jetson AGX Thor
docker run --rm --runtime nvidia --network host --ipc host --name chat \
  -v "$HOME/.cache/huggingface:/root/.cache/huggingface" \
  -e HF_TOKEN="$HF_TOKEN" \
  vllm/vllm-openai:v0.32.0 \
  --model meta-llama/Llama-3.1-8B-Instruct \
  --max-model-len 8192 \
  --max-num-seqs 4 \
  --gpu-memory-utilization 0.75   # the desktop needs the rest
