#!/usr/bin/env python3
"""Reduces tables of kernels of NVIDIA's aiconfigurator to what `blis validate --kernels` and `blis fit --kernels` read.

    reduce.py SOURCE TARGET     both are folders; TARGET/SOURCES.csv gets a line per file

Of a table that it keeps, it drops columns and rows that no reader uses (`COLUMNS`, `kept` below), sorts the rows and rounds times to five
significant digits. Other tables are left out and listed with 0 rows.
"""

import csv
import gzip
import hashlib
import sys
from pathlib import Path

COLUMNS = {
    "gemm_perf": ["gemm_dtype", "n", "k", "m"],
    "moe_perf": ["moe_dtype", "distribution", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "num_tokens"],
    "context_attention_perf": ["attn_dtype", "kv_cache_dtype", "head_dim", "window_size", "num_heads", "num_key_value_heads", "batch_size", "isl", "step"],
    "custom_allreduce_perf": ["backend", "allreduce_dtype", "num_gpus", "message_size"],
    "nccl_perf": ["op_name", "nccl_dtype", "num_gpus", "message_size"],
    "mla_generation_module_perf": ["mla_dtype", "kv_cache_dtype", "gemm_type", "num_heads", "batch_size", "isl", "tp_size", "step"],
}
COLUMNS["generation_attention_perf"] = COLUMNS["context_attention_perf"]
# Modules of latent attention are read by one test, of this GPU.
MLA = "h100_sxm__mla__vllm__0.24.0__mla_generation_module_perf"


def kept(table, row):
    """Whether a reader uses the row of a table."""
    if table == "gemm_perf":
        return row["gemm_dtype"] in ("bfloat16", "fp8", "nvfp4") and int(row["m"]) <= 8192 and min(int(row["n"]), int(row["k"])) >= 512
    if table == "moe_perf":
        formats = ("bfloat16", "fp8", "fp8_block", "nvfp4", "w4a16_mxfp4")
        return row["moe_dtype"] in formats and row["moe_ep_size"] == "1" and row["distribution"] == "power_law_1.01"
    if table.endswith("_attention_perf"):
        return row["head_dim"] == "128" and row.get("window_size", "0") == "0"
    return True


def number(text):
    try:
        return (0, float(text), "")
    except ValueError:
        return (1, 0.0, text)


def reduce(rows, table):
    columns = [name for name in COLUMNS[table] if name in rows[0]]
    found = [row for row in rows if kept(table, row)]
    lines = [[row[name] for name in columns] + [f"{float(row['latency']):.5g}"] for row in found]
    lines.sort(key=lambda line: [number(cell) for cell in line])
    return [columns + ["latency"], *lines]


def main(source, target):
    seen = set()
    with open(target / "SOURCES.csv", "w") as sources:
        print("table,sha256_of_the_original,rows,rows_kept", file=sources)
        for path in sorted(source.glob("*.csv.gz")):
            name = path.name.removesuffix(".csv.gz")
            gpu, table = name.split("__")[0], name.split("__")[-1]
            rows = list(csv.DictReader(gzip.open(path, "rt")))
            lines = []
            later = (gpu, table) in seen
            if later and table == "moe_perf":
                rows_read = [row for row in rows if row["moe_dtype"] == "w4a16_mxfp4"]
            else:
                rows_read = [] if later else rows
            # Of several versions of a table the program reads the first; experts with 4-bit weights, which that may lack, from the last.
            if table in COLUMNS and rows_read and ("__mla__" not in name or name == MLA):
                seen.add((gpu, table))
                lines = reduce(rows_read, table)
                text = "".join(",".join(line) + "\n" for line in lines)
                with open(target / path.name, "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as zipped:
                    zipped.write(text.encode())
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            print(f"{name},{digest},{len(rows)},{max(len(lines) - 1, 0)}", file=sources)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
