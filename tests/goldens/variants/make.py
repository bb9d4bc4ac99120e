"""Makes the goldens of this folder with transformers, in fp64 throughout: variants of model families that the other goldens do not cover.

    python make.py        needs torch, transformers and safetensors; rewrites the folders next to this file

The layout is that of the other language models' goldens (tests/goldens/models): config.json and model.safetensors of the model, golden.json and
golden.safetensors with inputs and expected values. Every sample is computed alone, by autograd.
"""
import json
import statistics
from pathlib import Path

import torch
from safetensors.torch import save_file

# transformers computes norms, softmax and rotary angles in fp32 whatever the model's type is: here fp32 means fp64 from now on.
FP32 = torch.float32
torch.float32 = torch.float = torch.float64
torch.Tensor.float = torch.Tensor.double
torch.set_default_dtype(torch.float64)

from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM,  # noqa: E402
                          Qwen3Config, Qwen3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

COMMON = dict(vocab_size=41, hidden_size=16, intermediate_size=20, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=64, attention_dropout=0.0, use_cache=False, attn_implementation="eager", bos_token_id=1, eos_token_id=2,
              pad_token_id=0)


def longrope(original, long, short):
    return dict(max_position_embeddings=64, original_max_position_embeddings=original, partial_rotary_factor=0.5,
                rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.5, short_factor=short, long_factor=long,
                                     original_max_position_embeddings=original))


VARIANTS = {
    "smollm3-nope": (SmolLM3ForCausalLM, SmolLM3Config, dict(tie_word_embeddings=True, no_rope_layers=[1, 0, 1], use_sliding_window=False)),
    "qwen2-window": (Qwen2ForCausalLM, Qwen2Config, dict(tie_word_embeddings=False, use_sliding_window=True, sliding_window=4, max_window_layers=1)),
    "qwen3-window": (Qwen3ForCausalLM, Qwen3Config,
                     dict(tie_word_embeddings=True, head_dim=6, use_sliding_window=True, sliding_window=3, max_window_layers=2)),
    "phi3-longrope-short": (Phi3ForCausalLM, Phi3Config,
                            dict(tie_word_embeddings=True, hidden_size=32, **longrope(32, [1.5, 3.0], [1.0, 1.25]))),
    "phi3-longrope-long": (Phi3ForCausalLM, Phi3Config,
                           dict(tie_word_embeddings=False, hidden_size=32, **longrope(8, [1.5, 3.0], [1.0, 1.25]))),
    "gemma3-scaled": (Gemma3ForCausalLM, Gemma3TextConfig,
                      dict(head_dim=6, query_pre_attn_scalar=5, sliding_window=4, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                           rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
                                                sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
}


def make(name, model_class, config_class, fields, seed):
    torch.manual_seed(seed)
    config = config_class(**{**COMMON, **fields})
    model = model_class(config).double().train()
    names = [n for n, _ in model.named_parameters()]
    with torch.no_grad():
        for parameter in model.parameters():  # larger than the library's, so that every part of the model matters; fp32 numbers
            spread = 0.3 if parameter.dim() > 1 else 0.2
            value = torch.randn(parameter.shape, dtype=FP32) * spread + (0 if parameter.dim() > 1 or "gemma3" in name else 1)
            parameter.copy_(value.double())

    batch, tokens = 4, 13
    ids = torch.randint(3, config.vocab_size, (batch, tokens))
    ids[:, 5] = ids[:, 2]  # repeated tokens
    mask = torch.ones_like(ids)
    labels = ids.clone()
    for i, length in enumerate([13, 11, 9, 6]):
        ids[i, length:], mask[i, length:], labels[i, length:] = config.pad_token_id, 0, -100
    labels[0, 3], labels[1, :4] = -100, -100

    expected = {"logits": torch.zeros(batch, tokens, config.vocab_size), "loss": torch.zeros(batch)}
    gradients = []
    for i in range(batch):
        model.zero_grad()
        logits = model(input_ids=ids[i:i + 1], attention_mask=mask[i:i + 1]).logits[0]
        assert logits.dtype == torch.float64
        loss = torch.nn.functional.cross_entropy(logits[:-1], labels[i, 1:], ignore_index=-100)
        loss.backward()
        expected["logits"][i], expected["loss"][i] = logits.detach() * mask[i].unsqueeze(1), loss.detach()
        gradients.append([p.grad.clone() for p in model.parameters()])
    squares = torch.stack([torch.stack([(g * g).sum() for g in row]) for row in gradients])
    norms = squares.sum(1).sqrt()
    clip = statistics.median(norms.tolist())
    coefficients = torch.clamp(clip / (norms + 1e-6), max=1.0)
    expected["norm"], expected["clip_coef"] = norms, coefficients
    for p, parameter in enumerate(names):
        expected[f"sq_norm.{parameter}"] = squares[:, p].clone()
        expected[f"grad_sum.{parameter}"] = sum(row[p] for row in gradients)
        expected[f"grad_clipped_sum.{parameter}"] = sum(c * row[p] for c, row in zip(coefficients, gradients))

    folder = Path(__file__).parent / name
    folder.mkdir(exist_ok=True)
    save_file({n: p.detach().to(FP32).contiguous() for n, p in model.named_parameters()}, folder / "model.safetensors", {"format": "pt"})
    save_file({**{f"input.{k}": v for k, v in dict(input_ids=ids, attention_mask=mask, labels=labels).items()},
               **{f"expected.{k}": v.contiguous() for k, v in expected.items()}}, folder / "golden.safetensors")
    saved = config.to_dict()
    unused = ("transformers_version dtype torch_dtype _attn_implementation _name_or_path output_hidden_states output_attentions return_dict "
              "chunk_size_feed_forward is_encoder_decoder id2label label2id").split()
    saved = {k: v for k, v in saved.items() if k not in unused and v is not None}
    saved.update(architectures=[model_class.__name__], torch_dtype="float32", vocab_size=config.vocab_size)
    (folder / "config.json").write_text(json.dumps(saved, indent=1) + "\n")
    golden = dict(model=name, task="causal language model", batch=batch, sequence=tokens, clip_norm=clip, clip_eps=1e-6,
                  tied_weights=bool(config.tie_word_embeddings), parameters={n: list(p.shape) for n, p in model.named_parameters()},
                  values=dict(loss=expected["loss"].tolist(), norm=norms.tolist(), clip_coef=coefficients.tolist()), seed=seed,
                  made_with=dict(torch=torch.__version__, transformers=__import__("transformers").__version__))
    (folder / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    print(name, [round(x, 4) for x in expected["loss"].tolist()], "norm", [round(x, 3) for x in norms.tolist()])


for number, (variant, parts) in enumerate(VARIANTS.items()):
    make(variant, *parts, seed=300 + number)
