"""Whether transformers loads what Veil exported, and computes the same logits.

    check_export.py FOLDER

FOLDER/NAME is an exported model, FOLDER/NAME.logits.safetensors holds input_ids, attention_mask and Veil's logits in fp64 and fp32. Prints the largest difference of each, relative to the largest logit.
Exit codes: 0 all agree, 1 one does not, 77 transformers cannot be imported.
"""

import sys
from pathlib import Path

try:
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
except ImportError as missing:
    print(f"not checked: {missing}")
    sys.exit(77)

# transformers computes norms and rotary angles in fp32 whatever the model's type is, so fp64 agrees to fp32's precision only.
ALLOWED = {"fp64": 1e-5, "fp32": 2e-5}


def logits(folder, case, dtype):
    import json

    architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
    kind = AutoModelForSequenceClassification if architecture.endswith("SequenceClassification") else AutoModelForCausalLM
    model, told = kind.from_pretrained(folder, dtype=dtype, local_files_only=True, output_loading_info=True)
    wrong = {what: sorted(names) for what, names in told.items() if names}
    if wrong:
        raise ValueError(f"{folder.name}: loaded with {wrong}")
    with torch.no_grad():
        return model.eval()(input_ids=case["input_ids"], attention_mask=case["attention_mask"]).logits


def main(root):
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    cases = sorted(Path(root).glob("*.logits.safetensors"))
    if not cases:
        print(f"{root} holds no *.logits.safetensors")
        return 1
    agree = True
    for path in cases:
        name = path.name.removesuffix(".logits.safetensors")
        case = load_file(path)
        for precision, dtype in (("fp64", torch.float64), ("fp32", torch.float32)):
            expected = case[f"logits_{precision}"].double()
            got = logits(path.parent / name, case, dtype).double()
            if got.shape != expected.shape:
                print(f"{name} {precision}: logits of shape {list(got.shape)}, Veil has {list(expected.shape)}")
                agree = False
                continue
            difference = ((got - expected).abs().max() / expected.abs().max()).item()
            good = difference <= ALLOWED[precision]
            agree = agree and good
            print(f"{name} {precision}: largest difference {difference:.2e} of the largest logit {expected.abs().max():.3f}{'' if good else ', too much'}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
