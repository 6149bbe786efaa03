"""Outside its package of versions, the adapter touches nothing of SGLang whose form differs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from engine_adapter.sglang.versions import FAMILIES, family_of, protocol


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ADAPTER = Path(__file__).resolve().parents[2] / "engine_adapter"
OWNERS: Mapping[str, frozenset[str]] = {
    "req": frozenset({"req", "r"}),
    "tree": frozenset({"tree_cache", "tree"}),
    "scheduler": frozenset({"scheduler", "_scheduler", "s"}),
}
"""What an object is called in the adapter."""

ALIKE: Mapping[str, frozenset[str]] = {
    "req": words(
        "_cache_breakdown_computed already_computed cached_tokens decode_batch_idx "
        "extend_batch_idx extra_key finished finished_reason full_untruncated_fill_ids grammar "
        "grammar_key grammar_wait_ct inflight_middle_chunks init_next_round_input input_embeds "
        "input_token_logprobs is_retracted last_node logprob multimodal_inputs origin_input_ids "
        "output_ids priority retracted_stain return_hidden_states return_logprob rid "
        "require_reasoning sampling_params set_finish_with_abort time_stats to_finish tokenizer"
    ),
    "tree": words("already_cached evictable_size eviction_strategy page_size root_node"),
    "scheduler": words(
        "_add_request_to_queue batch_result_processor chunked_prefill_size chunked_req device "
        "enable_overlap forward_stream future_map grammar_manager invariant_checker is_generation "
        "is_hybrid_ssm is_hybrid_swa last_batch load_inquirer max_prefill_tokens "
        "max_total_num_tokens model_config model_worker nccl_port new_token_ratio_tracker "
        "output_streamer page_size req_to_token_pool running_batch server_args spec_algorithm "
        "stash_chunked_request token_to_kv_pool_allocator tokenizer tp_cpu_group tp_group "
        "tp_worker tree_cache truncation_align_size waiting_queue"
    ),
}
"""Attributes that are the same in every family. One more is looked up in each before it stands."""

DIFFERENT = words(
    "MatchPrefixParams MatchResult ReqKvInfo get_exec get_memory get_parallel get_server_args "
    "release_kv_cache release_req resolved_view set_global_server_args_for_scheduler"
)
"""Names of SGLang's that only the modules of the families import."""


def used(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Owner, attribute and line of each attribute that is read or written of an owner."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        value = node.value
        name = getattr(value, "attr", None) or getattr(value, "id", "")
        for owner, names in OWNERS.items():
            if name in names:
                yield owner, node.attr, node.lineno


def outside() -> list[Path]:
    return sorted((ADAPTER / "sglang").glob("*.py"))


@pytest.mark.parametrize("path", outside(), ids=lambda path: path.name)
def test_only_the_families_touch_what_differs(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = [
        f"line {line}: {owner}.{name}"
        for owner, name, line in used(tree)
        if name not in ALIKE[owner]
    ]
    imported = [
        f"line {node.lineno}: {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in DIFFERENT
    ]
    assert found + imported == [], "put it behind engine_adapter/sglang/versions/protocol.py"


def test_the_look_finds_what_it_forbids() -> None:
    tree = ast.parse("live.req.kv = 1\nself._scheduler.ps.tp_size\nreq.req_pool_idx\n")
    assert {(owner, name) for owner, name, _ in used(tree)} == {
        ("req", "kv"), ("scheduler", "ps"), ("req", "req_pool_idx"),
    }  # fmt: skip


def test_every_attribute_that_is_allowed_is_used() -> None:
    found = {
        (owner, name) for path in outside() for owner, name, _ in used(ast.parse(path.read_text()))
    }
    for owner, names in ALIKE.items():
        assert names - {name for of, name in found if of == owner} == set(), owner


@pytest.mark.parametrize("module", FAMILIES.values())
def test_every_family_has_every_function_with_the_same_parameters(module: str) -> None:
    """mypy compares their types."""
    wanted = functions(ast.parse(Path(protocol.__file__).read_text()).body[-1], drop_self=True)
    path = ADAPTER / "sglang/versions" / f"{module}.py"
    assert functions(ast.parse(path.read_text())).items() >= wanted.items()


def functions(tree: ast.AST, *, drop_self: bool = False) -> dict[str, list[str]]:
    """Names of functions and of their parameters; constants are left out."""
    return {
        node.name: [arg.arg for arg in node.args.args[drop_self:]]
        for node in ast.iter_child_nodes(tree)
        if isinstance(node, ast.FunctionDef) and not node.name.isupper()
    }


def test_a_release_belongs_to_the_newest_family_before_it() -> None:
    assert [family_of(v) for v in ("0.5.16", "0.5.21", "0.5.22", "0.5.23", "0.6.0.post1")] == [
        "0.5.16", "0.5.16", "0.5.22", "0.5.22", "0.5.22",
    ]  # fmt: skip
