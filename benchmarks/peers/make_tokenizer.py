"""Write a small tokenizer folder for load clients that want one: a word is a token, so counts are beyond dispute."""

from __future__ import annotations

import json
import sys
from pathlib import Path

WORDS = 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Any other word is this one; not a special token, or it would be left out of prompts that are made of decoded text.
UNKNOWN = "w0"
CHAT = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def write_tokenizer(folder: Path) -> None:
    """Files that `transformers` loads without network: `w0` to `w4095` and three special tokens, split at spaces."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [*SPECIAL, *(f"w{index}" for index in range(WORDS))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": name, **flags} for index, name in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {name: i for i, name in enumerate(names)}, "unk_token": UNKNOWN},
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 32768,
        "eos_token": SPECIAL[0],
        "pad_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT,
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": len(names),
        "max_position_embeddings": 32768,
    }
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", settings), ("config.json", config)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    write_tokenizer(Path(sys.argv[1]))
