"""What decides the memory of a model, as its config.json gives it: layers of each kind, heads, experts, number formats.

Pure. Sizes count elements of the whole model; how they spread over GPUs is `weight_budget` and `pool_budget`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Bytes of an element as loaded: float32 is cast to what `torch_dtype` says, bfloat16 where it says nothing.
ELEMENT_BYTES = {"bfloat16": 2.0, "float16": 2.0, "half": 2.0, "float32": 4.0, "float": 4.0}


@dataclass(frozen=True, slots=True)
class Quantization:
    """Bytes per weight, scales included, of each kind of layer; embeddings and norms stay as they are."""

    method: str
    linear_bytes: float
    expert_bytes: float
    attention_bytes: float


@dataclass(frozen=True, slots=True)
class Attention:
    """Heads of one kind of attention layer. `gated`: the query projection is twice as wide (an output gate)."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    gated: bool = False

    @property
    def row(self) -> int:
        """Elements that one head keeps per token: its key and its value."""
        return self.head_dim + self.v_head_dim


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """MLA: one latent vector per token and layer in place of heads. `index_dim`: the indexer's, 0 without one."""

    heads: int
    kv_rank: int
    rope_dim: int
    nope_dim: int
    v_dim: int
    query_rank: int
    index_dim: int = 0
    index_heads: int = 0


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """DeepSeek-V4: one wide key-value head, kept for a window and, compressed by the layer's ratio, for the rest."""

    heads: int
    head_dim: int
    rope_dim: int
    query_rank: int
    output_rank: int
    output_groups: int
    index_dim: int
    index_heads: int
    window: int
    ratios: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """A layer that keeps a state per request and none per token: gated delta net, Mamba-2 or Kimi delta attention."""

    kind: Literal["gdn", "mamba2", "kda"]
    layers: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_bytes: float = 4.0

    @property
    def conv_channels(self) -> int:
        """Channels that the short convolution remembers: both key-like streams and the values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of a layer, their width, and the width of what every token passes besides."""

    count: int
    width: int
    shared_width: int
    layers: int


@dataclass(frozen=True, slots=True)
class Vision:
    """The image encoder: layers, hidden size and the width of its MLP."""

    layers: int
    hidden: int
    width: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One model. Exactly one of `attention`, `latent` and `compressed` tells what attention layers keep per token.

    `full_layers` keep the whole context, `window_layers` a window (in a pool of their own if `window_pool`);
    layers with a recurrent state are in `state`. `draft_layers` are those of a bundled draft (MTP). `unknown` names
    what the config left open: a prediction must not claim certainty on them.
    """

    architecture: str
    hidden: int
    layers: int
    vocab: int
    tied: bool
    context_length: int
    element_bytes: float
    quantization: Quantization
    full_layers: int
    attention: Attention | None = None
    latent: LatentAttention | None = None
    compressed: CompressedAttention | None = None
    state: RecurrentState | None = None
    window_layers: int = 0
    window_attention: Attention | None = None
    window: int = 0
    window_pool: bool = False
    dense_width: int = 0
    dense_layers: int = 0
    experts: Experts | None = None
    draft_layers: int = 0
    vision: Vision | None = None
    gated_mlp: bool = True
    unknown: tuple[str, ...] = ()

    @property
    def is_mla(self) -> bool:
        """Whether SGLang's MLA rules for defaults hold."""
        return self.latent is not None

    @property
    def mlp_matrices(self) -> int:
        """Matrices of one MLP: three with a gate, two without."""
        return 3 if self.gated_mlp else 2
