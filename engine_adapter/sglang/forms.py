"""What limits co-serving in the engine that SGLang has built: rows of `coserving_levels.LIMITS`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from engine_adapter.coserving_levels import Found, found

HOST_PAGE_TOKENS: Final = 16
"""Tokens of a page on the host."""

PLAIN: Final[dict[str, tuple[str, object]]] = {
    "speculative_algorithm": ("speculative", None),
    "enable_lora": ("lora", False),
    "enable_lora_overlap_loading": ("lora", False),
    "dllm_algorithm": ("diffusion", None),
    "moe_a2a_backend": ("experts", "none"),
    "enable_hierarchical_cache": ("cache", False),
    "enable_lmcache": ("cache", False),
    "enable_flexkv": ("cache", False),
    "enable_session_radix_cache": ("cache", False),
    "enable_unified_cache_external_linker": ("cache", False),
    "enable_unified_memory": ("cache", False),
    "enable_kv_cache_sharding": ("cache", False),
    "enable_hisparse": ("cache", False),
    "radix_cache_backend": ("cache", None),
    "disable_radix_cache": ("cache", False),
    "enable_pdmux": ("admission", False),
    "enable_streaming_session": ("admission", False),
    "enable_priority_scheduling": ("admission", False),
    "enable_two_batch_overlap": ("admission", False),
    "enable_single_batch_overlap": ("admission", False),
    "prefill_decode_interval": ("admission", None),
    "enable_watermark": ("admission", False),
}
"""Argument of the server -> the limit where it has another value than this."""


def limits_of_arguments(server_args: Any) -> Iterator[Found]:
    """What the arguments ask for, defaults filled in."""
    for name, (limit, plain) in PLAIN.items():
        value = getattr(server_args, name, plain)
        if value != plain and (value or plain):
            yield found(limit, "--" + name.replace("_", "-"))


def limits_of_model(scheduler: Any) -> Iterator[Found]:
    """What SGLang has built for the model."""
    if not scheduler.is_generation:
        yield found("embeddings")
    if (align := scheduler.truncation_align_size) is not None:
        yield found("align", align)
    if scheduler.model_config.use_ngram_embedding:
        yield found("ngram")
    yield from _limits_of_pools(scheduler)


def _limits_of_pools(scheduler: Any) -> Iterator[Found]:
    if scheduler.is_hybrid_ssm:
        yield found("state")
        return
    if scheduler.is_hybrid_swa:
        yield found("window")
        return
    tree = type(scheduler.tree_cache).__name__
    if tree != "RadixCache":
        yield found("tree", tree)
    pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
    scales = (getattr(pool, name, None) for name in ("k_scale_buffer", "kv_scale_buffer"))
    if any(one is not None for one in scales):
        yield found("scales")
    elif hasattr(pool, "kv_buffer"):
        if type(pool).__name__ != "MLATokenToKVPool":
            yield found("latent", type(pool).__name__)
    elif not (hasattr(pool, "k_buffer") and hasattr(pool, "v_buffer")):
        yield found("pool", type(pool).__name__)
    elif pool.v_buffer[0].shape[1:] != pool.k_buffer[0].shape[1:]:
        yield found("shapes")
    if HOST_PAGE_TOKENS % scheduler.page_size:
        yield found("page", scheduler.page_size)


@dataclass(frozen=True, slots=True)
class Layers:
    """The decoder layers of a model, as far as a step can stop between them.

    Attributes:
        layers: In their order; none where they were not found.
        limits: What stands against a stop.
    """

    layers: tuple[Any, ...]
    limits: tuple[Found, ...] = ()

    @classmethod
    def of(cls, model: Any, arguments: tuple[str, ...]) -> Layers:
        """Find them.

        Args:
            model: SGLang's.
            arguments: What requests can be cut out of: a layer's first ones.
        """
        layers = getattr(getattr(model, "model", None), "layers", None)
        if layers is None:
            return cls((), (found("no layers"),))
        # Layers of several kinds say the same of themselves: one sentence.
        told = dict.fromkeys(filter(None, (_other(layer, arguments) for layer in layers)))
        return cls(tuple(layers), tuple(found("layers", one) for one in list(told)[:1]))


def _other(layer: Any, wanted: tuple[str, ...]) -> str:
    """What a layer takes if that is not what requests can be cut out of; else empty."""
    has = tuple(inspect.signature(layer.forward).parameters)[: len(wanted)]
    return "" if has == wanted else f"{type(layer).__name__} takes {', '.join(has)}"
