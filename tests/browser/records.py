"""Made-up records of every suite in three sizes of grid, as `veil suite` leaves them."""
import json
import pathlib

GIB = 2**30
MODES = ["no_dp", "auto", "ghost", "flash", "bookkeeping", "flash_clip_bookkeeping", "materialize", "ghost_fsdp"]
# Time and bytes of a step relative to one that is not private.
COSTS = {"no_dp": (1, 0), "auto": (1.024, 0.4), "ghost": (1.9, 1.3), "flash": (2.1, 0.2), "bookkeeping": (1.3, 11.5),
         "flash_clip_bookkeeping": (1.4, 10.25), "materialize": (1.2, 31.5), "ghost_fsdp": (2.2, 1.5)}
PHASES = {"forward": 30, "first_backward": 25, "norms": 12, "kept_norms": 3, "coefficients": 1, "second_loss": 2,
          "second_backward": 20, "weight_grad": 9, "noise_update": 6, "gap": 1.5}
CATEGORIES = {"parameters": 0.3, "optimizer": 0.2, "gradients": 0.15, "activations": 0.2, "clip_records": 0.05, "norms": 0.01,
              "temporary": 0.04, "communication": 0.03, "data": 0.02}


def rows_of(peak, layers=6):
    rows = []
    for part, op, on in ([("prologue", "gather", "embed")] + [("body", "forward", f"layers.{i}") for i in range(layers)] +
                         [("body", "backward", f"layers.{i}") for i in reversed(range(layers))] + [("tail", "update", "head")]):
        share = 0.5 + 0.5 * len(rows) / (2 * layers + 2)
        after = {name: int(part_share * peak * share) for name, part_share in CATEGORIES.items()}
        rows.append({"part": part, "row": len(rows), "op": op, "on": on, "after": after,
                     "peak_bytes": min(int(peak), int(sum(after.values()) * 1.04))})
    return rows


def record(suite, order, name, title, mode, ms, peak, config, private=True, rows=False, **more):
    phases = {phase: {"ms": ms * share / 110} for phase, share in PHASES.items()}
    if not private:
        phases = {"forward": {"ms": 0.33 * ms}, "backward": {"ms": 0.6 * ms}, "update": {"ms": 0.03 * ms}, "gap": {"ms": 0.01 * ms}}
    return {"schema": 1, "suite": suite, "order": order, "experiment": name, "title": title, "outcome": "ok", "message": "",
            "mode": mode, "batch_size": 4, "total_batch_size": 8, "world": 2, "num_gpus": 2, "device": "cuda",
            "avg_time_ms": ms, "std_time_ms": 0.01 * ms, "times_ms": [0.99 * ms, ms, 1.01 * ms], "tokens_per_second": 4e6 / ms,
            "peak_memory_bytes": int(peak), "breakdown": {c: int(share * peak) for c, share in CATEGORIES.items()},
            "stages": [{"stage": stage, "rank": 0, "cuda_memory_allocated_GB": share * peak / GIB,
                        "cuda_max_memory_allocated_GB": share * peak / GIB, "cpu_memory_rss_GB": 1.5}
                       for stage, share in [("after data creation", 0.1), ("after model creation", 0.4), ("after warmup", 0.7)]],
            "memory_rows": rows_of(peak) if rows else [], "phases": phases,
            "communication": {"gather": {"total_ms": 0.2 * ms, "exposed_ms": 0.02 * ms, "bytes": 3 * GIB},
                              "reduce": {"total_ms": 0.1 * ms, "exposed_ms": 0.01 * ms, "bytes": GIB}},
            "losses": [2.5, 2.25], "command": f"veil profile --mode {mode}", "config": config,
            "notices": ["The weights are random: the model was not fetched."],
            "machine": {"host": "node", "gpus": [{"name": "NVIDIA H200", "memory_bytes": 139 * GIB}]}, "build": {"version": "0.1.0"}, **more}


def mode_grid(suite, modes, lengths):
    made = []
    for mode in modes:
        for length in lengths:
            factor, gib = COSTS[mode]
            t = length / 1024
            ms = (210 * t + 4.5 * t * t) * (1 if mode == "no_dp" else factor + 0.02 * t)
            made.append(record(suite, len(made), f"{mode}_seq{length}", f"{mode}, T={length}", mode, ms,
                               GIB * (15.9 + 2.4 * t + gib * t / 4), {"mode": mode, "seq-length": length},
                               private=mode != "no_dp", rows=len(made) < 3, seq_length=length))
            if suite == "bottlenecks" and mode != "no_dp":
                units = ["embed"] + [f"layers.{i}" for i in range(32)] + ["head"]
                made[-1]["phases"]["layers"] = {f"norms {unit}": ms * (0.003 + 0.0001 * i) for i, unit in enumerate(units)}
    return made


def zero_grid(strategies, batches, accumulations):
    made = []
    for s, strategy in enumerate(strategies):
        for batch in batches:
            for accumulation in accumulations:
                ms = (40 + 30.0 * batch) * accumulation * (1 + 0.04 * s)
                made.append(record("zero", len(made), f"{strategy}_bs{batch}_ga{accumulation}", f"{strategy} bs{batch} ga{accumulation}",
                                   "no_dp", ms, GIB * (30 - 9 * s + 1.5 * batch), {"strategy": strategy, "accumulation": accumulation},
                                   private=False, seq_length=2048, mfu=0.4, gpu_state={"utilisation_percent": min(99, 60 + 4 * batch)},
                                   memory_mean_bytes=GIB * 12,
                                   data={"source": "data", "tokenizer": "byte", "load_ms": 1.0, "loader_busy_ms": 0.5,
                                         "loader_waited_ms": 0.25, "steps_an_epoch": 10}))
                made[-1]["batch_size"] = batch
                made[-1]["tokens_per_second"] = 1000 * 2048 * batch * accumulation / ms
    return made


def dit_grid(modes, images, attentions=("flash",)):
    made = []
    for mode in modes:
        for image in images:
            for attention in attentions:
                factor, gib = COSTS[mode]
                name = {"no_dp": "vanilla", "flash": "flash_clip"}.get(mode, mode)
                if len(images) > 1:
                    name += f"_img{image}"
                if len(attentions) > 1:
                    name += f"_{attention}"
                tokens = (image // 8) ** 2
                ms = (20 + 0.08 * tokens + (0.0001 if attention == "math" else 0.00001) * tokens**2) * factor
                made.append(record("dit-dp", len(made), name, name.replace("_img", " img").replace("_math", " math"), mode, ms,
                                   GIB * (5.5 + 0.002 * tokens + gib * 0.1), {"mode": mode, "image-size": image, "attention": attention},
                                   private=mode != "no_dp", rows=len(made) < 14, attention=attention, seq_length=tokens,
                                   diffusion={"image_size": image, "patch_size": 8, "tokens": tokens}))
    return made


def linear_grid(count):
    kinds = [("ddp", "basic DDP", 1, 20), ("fsdp", "basic FSDP", 1.02, 9), ("fsdp_memory", "memory-optimised FSDP", 1.4, 4),
             ("fsdp_speed", "performance-optimised FSDP", 1.01, 11)]
    made = []
    for i in range(count):
        name, title, factor, gib = kinds[i % 4]
        batch = 1024 << (i // 4)
        if count > 4:
            name, title = f"{name}_bs{batch}", f"{title} bs{batch}"
        made.append(record("linear", i, name, title, "no_dp", 0.02 * batch * factor, GIB * (gib + batch / 4096),
                           {"data-parallel": "ddp" if "ddp" in name else "zero3"}, private=False, rows=i < 3, simulated=True,
                           link_gb_per_s=200, modelled_step_ms=0.022 * batch * factor))
        made[-1]["batch_size"] = batch
    return made


def checkpointing_grid(count):
    return [record("checkpointing", i, f"{kind}_seq{length}", f"{kind}, T={length}", "no_dp", 200.0 * factor * length / 1024,
                   GIB * (10 + share * length / 512), {"checkpointing": kind, "seq-length": length}, private=False, rows=i < 3,
                   seq_length=length)
            for i, (length, (kind, factor, share)) in enumerate(
                [(256 << (j // 3), [("none", 1, 4), ("selective", 1.1, 2), ("full", 1.3, 0.5)][j % 3]) for j in range(count)])]


GRIDS = {
    "llama3-dp": {3: lambda: mode_grid("llama3-dp", MODES[:3], [1024]),
                  12: lambda: mode_grid("llama3-dp", MODES[:4], [1024, 2048, 4096]),
                  48: lambda: mode_grid("llama3-dp", MODES, [512, 1024, 2048, 4096, 8192, 16384])},
    "bottlenecks": {3: lambda: mode_grid("bottlenecks", ["flash"], [1024, 2048, 4096]),
                    12: lambda: mode_grid("bottlenecks", ["flash", "bookkeeping", "auto"], [1024, 2048, 4096, 8192]),
                    48: lambda: mode_grid("bottlenecks", MODES, [512, 1024, 2048, 4096, 8192, 16384])},
    "zero": {3: lambda: zero_grid(["ddp", "zero2", "zero3"], [4], [1]),
             12: lambda: zero_grid(["zero2", "zero3"], [2, 4, 8], [1, 2]),
             48: lambda: zero_grid(["ddp", "zero2", "zero3"], [1, 2, 4, 8], [1, 2, 4, 8])},
    "dit-dp": {3: lambda: dit_grid(MODES[:3], [256]), 12: lambda: dit_grid(MODES[:4], [64, 128, 256]),
               48: lambda: dit_grid(MODES[:6], [64, 128, 256, 512], ["flash", "math"])},
    "linear": {count: lambda count=count: linear_grid(count) for count in (3, 12, 48)},
    "checkpointing": {count: lambda count=count: checkpointing_grid(count) for count in (3, 12, 48)},
}


def metrics_of(steps, private):
    lines = []
    for step in range(1, steps + 1):
        line = {"step": step}
        if private:
            line |= {"epsilon": 0.5 + 0.02 * step**0.5, "clip_norm": 1.0}
        line |= {"loss": 5.5 / step**0.1 + 0.1 * (step % 3), "learning_rate": 1e-3 * (1 - step / (steps + 1)), "seconds": 0.21,
                 "tokens_per_second": 12345.6 + step % 7, "peak_memory_bytes": 3 * GIB}
        lines.append(line)
        if step % max(1, steps // 5) == 0:
            lines.append({"step": step, "held_out_loss": 5.6 / step**0.1, "held_out_samples": 64})
    return lines


def write(root):
    """Folders under `root`, each for `veil report`: <suite>_<count>, and training runs."""
    root = pathlib.Path(root)
    folders = []
    for suite, sizes in GRIDS.items():
        for count, make in sizes.items():
            folder = root / f"{suite}_{count}"
            folder.mkdir(parents=True)
            records = make()
            assert len(records) == count, (suite, count, len(records))
            for one in records:
                (folder / f"{one['experiment']}_result.json").write_text(json.dumps(one))
            folders.append(folder)
    for name, steps, private in [("training_40", 40, False), ("training_private_3000", 3000, True)]:
        folder = root / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics_of(steps, private)))
        (folder / "settings.json").write_text(json.dumps({"model": "llama-tiny", "batch-size": 8, "steps": steps}))
        folders.append(folder)
    return folders


if __name__ == "__main__":
    import sys
    print("\n".join(str(folder) for folder in write(sys.argv[1])))
