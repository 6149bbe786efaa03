"""What one request could break or bend in stock SGLang 0.5.16, put right whatever the policy.

Grammars that end or starve an engine, seeds of single requests, bytes of tokens.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, Final

from api.schemas.limits import grammar_refusal, pattern_refusal, schema_refusal
from engine_adapter.sglang.numbers import TOO_SLOW

# --- Structured output that cannot stop the engine: stock SGLang can be ended by one request.
#
# - A schema nothing can satisfy leaves a request without a single allowed token; sampling from such
#   a request raises, and the exception ends the scheduler. Here the request is opened instead:
#   whatever is sampled then breaks the grammar, and SGLang ends that request alone.
# - Compiling a huge grammar takes minutes on every core. Here it is refused by its size, and the
#   compiler gets few threads, which give way to the engine's steps. Not too far: such a thread has
#   the interpreter's lock for a moment before and after it compiles, and whoever wants the lock
#   then waits until the thread has run. Beside two busy processes on two cores that was 3.1 s at
#   the least priority, and 0.13 s at ours. One that takes long has no lock meanwhile: it goes to
#   the least, and others get new threads.
# - Stock SGLang gives up a grammar after 10,000 looks at it, each a step long: an hour on a CPU.
#   Here it is given up by the clock. Its thread cannot be ended, so those that wait get new ones.
# - Stock SGLang keeps every grammar that it ever compiled. Here the oldest go.

COMPILER_THREADS = 1
COMPILATIONS_AT_ONCE = 2
COMPILE_LIMIT_S = 30.0
CACHE_BYTES = 256 << 20
"""Of compiled grammars that are kept: one of 300 properties has 189 MB."""
BELOW_STEPS = 5
"""Of the priority of a thread that compiles."""
LONG_S = 3.0
LEAST_PRIORITY = 19
TOKEN_LIMIT_S = 0.5
"""Of the scheduler's own time, for what a grammar says of one token."""
_ALL_ALLOWED = -1  # 32 bits set


def guard_grammars() -> None:
    """Guard SGLang's grammar backend in this process."""
    from sglang.srt.constrained import base_grammar_backend, grammar_manager
    from sglang.srt.constrained import xgrammar_backend as backend

    backend.GrammarCompiler = functools.partial(
        backend.GrammarCompiler, max_threads=COMPILER_THREADS, cache_limit_bytes=CACHE_BYTES
    )
    kind = backend.XGrammarGrammarBackend
    base = base_grammar_backend.BaseGrammarBackend  # one around ours has threads of its own
    base.__init__ = _with_few_threads(base.__init__)
    invalid = backend.InvalidGrammarObject
    json_alone = _limited(kind.dispatch_json, schema_refusal, invalid)
    tags = _limited(kind.dispatch_structural_tag, schema_refusal, invalid)
    kind.dispatch_json = _naming(json_alone, json_alone, invalid)
    kind.dispatch_structural_tag = _naming(tags, json_alone, invalid)
    kind.dispatch_regex = _limited(kind.dispatch_regex, pattern_refusal, invalid)
    kind.dispatch_ebnf = _limited(kind.dispatch_ebnf, grammar_refusal, invalid)
    base.set_cache = keep_newest
    waiting = grammar_manager.GrammarManager
    waiting.get_ready_grammar_requests = in_time(waiting.get_ready_grammar_requests)
    grammar = backend.XGrammarGrammar
    grammar.accept_token = _raises_one_kind(grammar.accept_token)
    grammar.fill_vocab_mask = _never_empty(grammar.fill_vocab_mask)


def _with_few_threads(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _new_threads(self)

    return wrapped


def _new_threads(backend: Any) -> None:
    """What was submitted before still runs, on the threads that there were."""
    backend.executor.shutdown(wait=False)
    backend.executor = ThreadPoolExecutor(COMPILATIONS_AT_ONCE, "grammar", _give_way)


def _give_way() -> None:
    """A thread that compiles leaves most of the processor to the steps of the engine."""
    thread = threading.get_native_id()
    own = os.getpriority(os.PRIO_PROCESS, thread)
    os.setpriority(os.PRIO_PROCESS, thread, min(own + BELOW_STEPS, LEAST_PRIORITY))


_compiling_since_s: dict[int, float] = {}
"""By the threads that compile, those that are not at the least priority."""


def _hold_back(now_s: float) -> bool:
    """Put threads that compile for long at the least priority; whether there were any."""
    started = [*_compiling_since_s.copy().items()]
    slow = [one for one, since_s in started if now_s - since_s > LONG_S]
    for thread in slow:
        if _compiling_since_s.pop(thread, None) is not None:
            with suppress(ProcessLookupError):  # it has ended in between
                os.setpriority(os.PRIO_PROCESS, thread, LEAST_PRIORITY)
    return bool(slow)


def keep_newest(self: Any, key: tuple[str, str], value: Any) -> None:
    """SGLang's `set_cache`, with a limit: every other schema would be kept for ever."""
    sizes: dict[tuple[str, str], int] = vars(self).setdefault("coserve_sizes", {})
    if not self.cache:
        sizes.clear()
    self.cache[key], sizes[key] = value, len(key[1]) + _num_bytes(value)
    while sum(sizes.values()) > CACHE_BYTES and len(sizes) > 1:
        oldest = next(iter(sizes))
        del sizes[oldest], self.cache[oldest]


def _num_bytes(grammar: Any) -> int:
    compiled = getattr(getattr(grammar, "grammar", grammar), "ctx", None)
    return getattr(compiled, "memory_size_bytes", 0)


def in_time(
    poll: Callable[[Any], list[Any]], now_s: Callable[[], float] = time.monotonic
) -> Callable[[Any], list[Any]]:
    """SGLang's look at the requests that wait for grammars, with a limit by the clock."""

    @functools.wraps(poll)
    def wrapped(self: Any) -> list[Any]:
        is_stuck = _hold_back(now_s())
        for req in self.grammar_queue:
            since_s = vars(req).setdefault("coserve_grammar_since_s", now_s())
            if now_s() - since_s < COMPILE_LIMIT_S or not isinstance(req.grammar, Future):
                continue  # without one it was aborted
            if not req.grammar.done():
                req.grammar_wait_ct = self.SGLANG_GRAMMAR_MAX_POLL_ITERATIONS
                is_stuck = is_stuck or req.grammar.running()
        if is_stuck:
            _new_threads(self.grammar_backend)
            _submit_again(self)
        return poll(self)

    return wrapped


def _submit_again(manager: Any) -> None:
    """Grammars that wait behind those that take long are compiled by the new threads."""
    backend = manager.grammar_backend
    for req in manager.grammar_queue:
        if isinstance(req.grammar, Future) and req.grammar.cancel():
            again = (req.grammar_key, req.require_reasoning)
            req.grammar = backend.executor.submit(backend._init_value_dispatch, *again)


def _limited(
    dispatch: Callable[[Any, str], Any], refusal: Callable[[str], str | None], invalid: Any
) -> Callable[[Any, str], Any]:
    @functools.wraps(dispatch)
    def wrapped(self: Any, key_string: str) -> Any:
        refused = refusal(key_string)
        if refused:
            return invalid(refused)
        thread = threading.get_native_id()
        _compiling_since_s[thread] = time.monotonic()
        try:
            return dispatch(self, key_string)
        finally:
            _compiling_since_s.pop(thread, None)

    return wrapped


def _naming(
    dispatch: Callable[[Any, str], Any], dispatch_json: Callable[[Any, str], Any], invalid: Any
) -> Callable[[Any, str], Any]:
    """Say whose arguments cannot be compiled, where a grammar holds calls of functions."""

    @functools.wraps(dispatch)
    def wrapped(self: Any, key_string: str) -> Any:
        made = dispatch(self, key_string)
        if isinstance(made, invalid):
            for name, schema in functions_in(key_string):
                alone = dispatch_json(self, schema)
                if isinstance(alone, invalid):
                    return invalid(f"function '{name}': {alone.error_message}")
        return made

    return wrapped


def functions_in(text: str) -> Iterator[tuple[str, str]]:
    """Functions that a schema or a structural tag has calls of, and their arguments' schemas.

    As `api.tool_prompt` writes them, and as SGLang does where a call is forced.
    """
    try:
        whole = json.loads(text)
    except (RecursionError, json.JSONDecodeError):
        return
    if not isinstance(whole, dict):
        return
    form = whole.get("format")
    listed = (form.get("elements") or [form])[0] if isinstance(form, dict) else {}
    for tag in listed.get("tags") or ():
        named = _NAMED.search(tag["begin"])
        if named is not None:
            yield named[1], json.dumps(tag["content"]["json_schema"])
    items = whole.get("items")
    each = items.get("anyOf", [items]) if isinstance(items, dict) else ()
    for one in each:
        parts = one.get("properties") if isinstance(one, dict) else None
        if isinstance(parts, dict) and parts.keys() == {"name", "parameters"}:
            schema = parts["parameters"]
            defs = {name: whole[name] for name in ("$defs",) if name in whole}
            name = (parts["name"].get("enum") or [""])[0] if type(parts["name"]) is dict else ""
            if type(schema) is dict:
                yield name, json.dumps({**schema, **defs})


_NAMED: Final = re.compile(r'"name": ?"([\w.-]+)"')


def _raises_one_kind(accept: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    """SGLang ends a request alone where its grammar raises a `ValueError`, and no other kind."""

    @functools.wraps(accept)
    def wrapped(self: Any, token: int) -> None:
        if vars(self).get("coserve_is_slow"):
            raise ValueError(TOO_SLOW)
        began_s = time.thread_time()
        try:
            accept(self, token)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"the grammar raises {type(error).__name__}") from error
        _note_time(self, began_s)

    return wrapped


def _note_time(grammar: Any, began_s: float) -> None:
    """One that is ambiguous may take seconds for a token, in which nobody else is served."""
    if time.thread_time() - began_s > TOKEN_LIMIT_S:
        vars(grammar)["coserve_is_slow"] = True


def _never_empty(fill: Callable[[Any, Any, int], None]) -> Callable[[Any, Any, int], None]:
    @functools.wraps(fill)
    def wrapped(self: Any, vocab_mask: Any, idx: int) -> None:
        began_s = time.thread_time()
        fill(self, vocab_mask, idx)
        _note_time(self, began_s)
        request = vocab_mask[idx]
        if not request.any():
            request.fill_(_ALL_ALLOWED)

    return wrapped


# --- Seeds: the same request with a seed gives the same answer beside any others.
#
# Stock SGLang looks at a request's seed only where the whole engine samples deterministically, by a
# kernel for GPUs. With torch's own sampling (any CPU engine) a seeded request is drawn here, from
# its own probabilities by a number made of its seed and its place in the sequence alone. So neither
# neighbours nor a preemption turn it; requests without a seed are drawn as before. Other sampling
# backends take no seeds, and the service refuses them there.

NO_SEED: Final = -(1 << 63)
BACKEND: Final = "pytorch"


def honour_seeds() -> None:
    """Have SGLang's sampler honour seeds in this process."""
    from sglang.srt.layers.sampler import Sampler
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    made: Any = SamplingBatchInfo
    made.from_schedule_batch = classmethod(_with_seeds(SamplingBatchInfo.from_schedule_batch))
    sampler: Any = Sampler
    sampler._sample_from_probs = _seeded_apart(sampler._sample_from_probs)


def _with_seeds(make: Callable[..., Any]) -> Callable[..., Any]:
    def from_schedule_batch(_: type, batch: Any, vocab_size: int) -> Any:
        from engine_adapter.sglang.upload import upload
        from engine_adapter.sglang.versions.installed import seam

        info = make(batch, vocab_size)
        if info.sampling_seed is None and seam.sampling_backend() == BACKEND:
            # Merged batches need a value for each request, so there is one for those without a
            # seed.
            seeds = [_seed_of(req.sampling_params.sampling_seed) for req in batch.reqs]
            info.sampling_seed = upload(seeds, batch.device)
        return info

    return from_schedule_batch


def _seed_of(seed: int | None) -> int:
    return NO_SEED if seed is None else max(seed, NO_SEED + 1)


def _seeded_apart(sample: Callable[..., Any]) -> Callable[..., Any]:
    """`_sample_from_probs`, by which every request is drawn, and then those with a seed by it."""

    @functools.wraps(sample)
    def wrapped(self: Any, probs: Any, info: Any, positions: Any, simple: bool) -> Any:
        from engine_adapter.sglang.versions.installed import seam

        seeds = info.sampling_seed
        if seeds is None or seam.is_deterministic():
            return sample(self, probs, info, positions, simple)
        requests = (seeds != NO_SEED).nonzero().view(-1).tolist()
        chosen = {
            request: _chosen(probs[request], info, request, int(positions[request]))
            for request in requests
        }
        info.sampling_seed = None
        try:
            sampled = sample(self, probs, info, positions, simple)
        finally:
            info.sampling_seed = seeds
        for request, token in chosen.items():
            seam.token_ids(sampled)[request] = token
        return sampled

    return wrapped


def _chosen(probs: Any, info: Any, request: int, position: int) -> int:
    """The token of one request: the one whose share of [0, 1) holds its number.

    Which filters the request asks for decides the order of the shares, never those of other
    requests.
    """
    import torch

    top_k, top_p = int(info.top_ks[request]), float(info.top_ps[request])
    min_p = float(info.min_ps[request])
    tokens = None
    shares = probs.double()
    if top_k < len(probs) or top_p < 1 or min_p > 0:
        shares, tokens = shares.sort(descending=True, stable=True)
        before = shares.cumsum(0) - shares
        out = (before > top_p) | (shares < shares[0] * min_p)
        out[top_k:] = True
        shares = shares.masked_fill(out, 0.0)
    ends = shares.cumsum(0)
    at = seeded_number(int(info.sampling_seed[request]), position) * ends[-1]
    index = int(torch.searchsorted(ends, at, right=True))
    return index if tokens is None else int(tokens[index])


def seeded_number(seed: int, position: int) -> float:
    """A number in [0, 1), as if by chance."""
    digest = hashlib.blake2b(struct.pack("<qq", seed, position), digest_size=8).digest()
    return int.from_bytes(digest, "little") / (1 << 64) * (1 - 1e-12)


# --- The bytes of a token that is no whole text: a part of an emoji, say.
#
# SGLang tells a token's text, and as its `bytes` the UTF-8 of that text. Of a token that holds part
# of a character the text is the replacement character, and its three bytes say nothing. OpenAI's
# `bytes` are the token's own, so that a reader may join them (row E-12). Alternatives are kept by
# their texts, so those with the same one were taken for one token, with the last one's value.

TOKEN_TEXTS: Final = (
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.detokenize_logprob_tokens"
)
REPLACEMENT: Final = "\ufffd"
_FALLBACK: Final = re.compile(r"<0x([0-9A-F]{2})>")


class PartialText(str):
    """A token's text that is not its own, encoded as the token's bytes.

    No other token's text is equal to it, so both may be names in one table.
    """

    __slots__ = ("raw",)

    raw: bytes

    @classmethod
    def of(cls, text: str, raw: bytes) -> PartialText:
        """`text`, which stands for `raw`."""
        made = cls(text)
        made.raw = raw
        return made

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """The token's bytes, which is what SGLang asks for."""
        return self.raw if encoding == "utf-8" else super().encode(encoding, errors)

    def __eq__(self, other: object) -> bool:
        if self is other or isinstance(other, PartialText):
            return self is other
        return REPLACEMENT in self and str.__eq__(self, other)

    __hash__ = str.__hash__


def with_bytes(
    found: Sequence[tuple[float, int, str | None]], manager: Any, *_: Any, **__: Any
) -> list[tuple[float, int, str | None]]:
    """What SGLang found of some tokens, with the texts that are not a token's own told apart."""
    owners: dict[str, int] = {}
    return [
        (value, token_id, _told(manager.tokenizer, token_id, text, owners))
        for value, token_id, text in found
    ]


def _told(tokenizer: Any, token_id: int, text: str | None, owners: dict[str, int]) -> str | None:
    if text is None:
        return None
    if REPLACEMENT not in text:
        is_own = owners.setdefault(text, token_id) == token_id
        return text if is_own else PartialText.of(text, text.encode())
    raw = raw_bytes(tokenizer.convert_ids_to_tokens(token_id), byte_of_char())
    return PartialText.of(text, text.encode() if raw is None else raw)


def raw_bytes(token: str | None, byte_of: Mapping[str, int]) -> bytes | None:
    """The bytes of a vocabulary's entry; none where it is of neither kind that has such tokens.

    Args:
        token: The entry: of bytes that are written as printable characters, or `<0xF0>`.
        byte_of: Which byte each of these characters stands for.
    """
    if token is None:
        return None
    fallback = _FALLBACK.fullmatch(token)
    if fallback is not None:
        return bytes([int(fallback[1], 16)])
    try:
        return bytes(byte_of[char] for char in token)
    except KeyError:
        return None


@cache
def byte_of_char() -> dict[str, int]:
    """Of the alphabet that all byte-level vocabularies share."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {char: byte for byte, char in bytes_to_unicode().items()}
