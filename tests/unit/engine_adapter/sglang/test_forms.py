"""What of a model, its pools and SGLang's arguments limits co-serving."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_adapter.coserving_levels import Coserving
from engine_adapter.sglang.forms import PLAIN, Layers, limits_of_arguments, limits_of_model


class RadixCache:
    """Named like SGLang's plain prefix tree."""


class HiRadixCache:
    """Named like another of its trees."""


def buffers(*shape: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(shape=(8, *shape))]


HEADS = SimpleNamespace(k_buffer=buffers(2, 4), v_buffer=buffers(2, 4))


class MLATokenToKVPool(SimpleNamespace):
    """Named like SGLang's plain pool of latent KV."""


LATENT = SimpleNamespace(kv_buffer=buffers(1, 6))


def scheduler_with(pool: SimpleNamespace = HEADS, **flags: object) -> SimpleNamespace:
    plain = {
        "tree_cache": RadixCache(),
        "is_hybrid_swa": False,
        "model_config": SimpleNamespace(use_ngram_embedding=False),
        "is_hybrid_ssm": False,
        "is_generation": True,
        "truncation_align_size": None,
        "page_size": 1,
    }
    allocator = SimpleNamespace(get_kvcache=lambda: pool)
    return SimpleNamespace(**{**plain, **flags}, token_to_kv_pool_allocator=allocator)


def test_a_plain_model_has_no_limit() -> None:
    assert list(limits_of_model(scheduler_with())) == []
    assert list(limits_of_model(scheduler_with(MLATokenToKVPool(**vars(LATENT))))) == []


@pytest.mark.parametrize(
    ("scheduler", "level", "words"),
    [
        (scheduler_with(is_hybrid_swa=True), 0, "--disable-hybrid-swa-memory"),
        (scheduler_with(is_hybrid_ssm=True), 0, "state-space layers"),
        (scheduler_with(is_generation=False), 0, "makes no text"),
        (scheduler_with(truncation_align_size=4096), 0, "multiples of 4096 tokens"),
        (
            scheduler_with(model_config=SimpleNamespace(use_ngram_embedding=True)),
            0,
            "n-gram embeddings",
        ),
        (scheduler_with(tree_cache=HiRadixCache()), 0, "HiRadixCache"),
        (scheduler_with(SimpleNamespace()), 0, "SimpleNamespace"),
        (scheduler_with(LATENT), 1, "latent"),
        (scheduler_with(SimpleNamespace(**vars(HEADS), k_scale_buffer=[object()])), 1, "scales"),
        (scheduler_with(SimpleNamespace(**vars(LATENT), kv_scale_buffer=[])), 1, "scales"),
        (
            scheduler_with(SimpleNamespace(k_buffer=buffers(2, 4), v_buffer=buffers(2, 3))),
            2,
            "different shapes",
        ),
        (scheduler_with(page_size=64), 2, "64 tokens"),
    ],
)
def test_other_forms_have_the_level_that_is_left(
    scheduler: SimpleNamespace, level: int, words: str
) -> None:
    limited = Coserving.of(limits_of_model(scheduler))
    assert limited.level == level
    assert words in limited.reasons[str(level + 1)]


@pytest.mark.parametrize("name", PLAIN)
def test_an_argument_with_another_value_is_a_limit_with_its_name(name: str) -> None:
    plain = {name: value for name, (_, value) in PLAIN.items()}
    assert list(limits_of_arguments(SimpleNamespace(**plain))) == []
    (limit,) = limits_of_arguments(SimpleNamespace(**{**plain, name: "other"}))
    assert limit.what == "--" + name.replace("_", "-")
    assert limit.limit.level == 0


class Plain:
    def forward(self, positions: object, hidden_states: object, forward_batch: object) -> None:
        """Like most decoder layers."""


class Other:
    def forward(self, hidden_states: object, positions: object, forward_batch: object) -> None:
        """Like some others."""


ARGUMENTS = ("positions", "hidden_states", "forward_batch")


def test_layers_of_the_usual_form_are_no_limit() -> None:
    model = SimpleNamespace(model=SimpleNamespace(layers=[Plain(), Plain()]))
    layers = Layers.of(model, ARGUMENTS)
    assert (len(layers.layers), layers.limits) == (2, ())


def test_layers_that_take_something_else_are_told_once() -> None:
    model = SimpleNamespace(model=SimpleNamespace(layers=[Other(), Plain(), Other()]))
    layers = Layers.of(model, ARGUMENTS)
    assert len(layers.layers) == 3
    assert Coserving(layers.limits).level == 2
    (limit,) = layers.limits
    assert limit.why.startswith("Other takes hidden_states, positions, forward_batch: ")


def test_a_model_whose_layers_are_elsewhere_stops_nowhere() -> None:
    layers = Layers.of(SimpleNamespace(), ARGUMENTS)
    assert (layers.layers, Coserving(layers.limits).level) == ((), 1)
