"""Power of one GPU while it multiplies the weights of Llama-3.1-8B with batches of several sizes, copies memory, or idles."""
import json, statistics, subprocess, sys, threading, time
import torch

SECONDS, SETTLE = 4.0, 1.0
torch.set_grad_enabled(False)
name = torch.cuda.get_device_name()

class Meter:
    def __init__(self):
        self.samples = []
        self.process = subprocess.Popen(
            ["nvidia-smi", "--query-gpu=power.draw.instant,clocks.sm,temperature.gpu", "--format=csv,noheader,nounits", "-lms", "50"],
            stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()
    def read(self):
        for line in self.process.stdout:
            try:
                watts, clock, heat = (float(x) for x in line.split(","))
                self.samples.append((time.monotonic(), watts, clock, heat))
            except ValueError:
                print("sample?", line.strip(), file=sys.stderr)
    def between(self, start, end):
        chosen = [s for s in self.samples if start <= s[0] <= end]
        return {"watts": statistics.fmean(s[1] for s in chosen), "watts_sd": statistics.pstdev(s[1] for s in chosen),
                "sm_mhz": statistics.fmean(s[2] for s in chosen), "celsius": chosen[-1][3], "samples": len(chosen)}

meter = Meter()
rows = []

def measure(label, step, flops, bytes_, sleep=0.0):
    """Repeats `step` for SETTLE + SECONDS; with `sleep`, idles that share of the time."""
    graph = None
    if step:
        step(); torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step(); torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
        torch.cuda.synchronize()
    begin = time.monotonic(); counted = None; n = 0
    while (now := time.monotonic()) < begin + SETTLE + SECONDS:
        if counted is None and now > begin + SETTLE:
            counted, n = now, 0
        if graph:
            t = time.monotonic(); graph.replay(); torch.cuda.synchronize(); took = time.monotonic() - t; n += 1
            if sleep:
                time.sleep(took * sleep / (1 - sleep))
        else:
            time.sleep(0.05)
    end = time.monotonic()
    row = {"label": label, "step_ms": 1e3 * (end - counted) / n if n else None, "tflops": flops * n / (end - counted) / 1e12,
           "gb_per_s": bytes_ * n / (end - counted) / 1e9, **meter.between(counted, end)}
    rows.append(row); print(json.dumps(row), flush=True)

time.sleep(3)
measure("idle", None, 0, 0)
shapes = [(4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096)]
weights = [torch.randn(i, o, device="cuda", dtype=torch.bfloat16) * 0.02 for _ in range(32) for i, o in shapes]
weight_bytes = sum(w.numel() * 2 for w in weights)
measure("weights loaded, idle", None, 0, 0)
for batch in (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192):
    inputs = {i: torch.randn(batch, i, device="cuda", dtype=torch.bfloat16) for i in (4096, 14336)}
    outputs = {w.shape: torch.empty(batch, w.shape[1], device="cuda", dtype=torch.bfloat16) for w in weights}
    def step():
        for w in weights:
            torch.mm(inputs[w.shape[0]], w, out=outputs[w.shape])
    flops = sum(2 * batch * w.numel() for w in weights)
    activations = sum(2 * batch * (w.shape[0] + w.shape[1]) for w in weights)
    measure(f"linear layers, {batch} tokens", step, flops, weight_bytes + activations)
inputs = {i: torch.randn(64, i, device="cuda", dtype=torch.bfloat16) for i in (4096, 14336)}
outputs = {w.shape: torch.empty(64, w.shape[1], device="cuda", dtype=torch.bfloat16) for w in weights}
def step64():
    for w in weights:
        torch.mm(inputs[w.shape[0]], w, out=outputs[w.shape])
for sleep in (0.25, 0.5, 0.75):
    measure(f"linear layers, 64 tokens, idle {sleep:.0%} of the time", step64, sum(128 * w.numel() for w in weights), weight_bytes, sleep)
source = torch.empty(4 << 30, device="cuda", dtype=torch.uint8).random_(); target = torch.empty_like(source)
def copy(): target.copy_(source)
measure("copy", copy, 0, 2 * source.numel())
kv = torch.randn(2 << 30, device="cuda", dtype=torch.bfloat16) if False else None
measure("read (sum)", lambda: source.view(torch.int64).sum(), 0, source.numel())
# Attention of a decode batch: 64 sequences of 4096 tokens, 32 query and 8 KV heads.
import torch.nn.functional as F
for batch, tokens in ((16, 8192), (64, 4096), (256, 1024)):
    q = torch.randn(batch, 32, 1, 128, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(batch, 8, tokens, 128, device="cuda", dtype=torch.bfloat16); v = torch.randn_like(k)
    qg = q.view(batch, 8, 4, 128)
    measure(f"decode attention, {batch} x {tokens}", lambda: F.scaled_dot_product_attention(qg, k, v), 4 * batch * 32 * tokens * 128, 2 * k.numel() * 2)
for tokens in (2048, 8192):
    q = torch.randn(4, 32, tokens, 128, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(4, 32, tokens, 128, device="cuda", dtype=torch.bfloat16); v = torch.randn_like(k)
    measure(f"prefill attention, 4 x {tokens}, causal", lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), 2 * 4 * 32 * tokens * tokens * 128, 4 * q.numel() * 2)
time.sleep(2)
measure("idle afterwards", None, 0, 0)
limit = subprocess.run(["nvidia-smi", "--query-gpu=name,power.limit,power.max_limit,clocks.max.sm,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
json.dump({"gpu": name, "nvidia_smi": limit, "torch": torch.__version__, "rows": rows}, open(sys.argv[1], "w"), indent=1)
print(limit)
