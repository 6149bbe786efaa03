"""Structured output that cannot stop the engine: stock SGLang 0.5.16 can be ended by one request.

- A schema nothing can satisfy leaves a row without a single allowed token; sampling from such a
  row raises, and the exception ends the scheduler. Here the row is opened instead: whatever is
  sampled then breaks the grammar, and SGLang ends that request alone.
- Compiling a huge grammar takes minutes on every core. Here it is refused by its size, and the
  compiler gets few threads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from engine_adapter.sglang.schema_limits import (
    grammar_refusal,
    pattern_refusal,
    schema_refusal,
)

COMPILER_THREADS = 1
COMPILATIONS_AT_ONCE = 2
_ALL_ALLOWED = -1  # 32 bits set


def install() -> None:
    """Guard SGLang's grammar backend in this process."""
    from sglang.srt.constrained import xgrammar_backend as backend

    backend.GrammarCompiler = functools.partial(
        backend.GrammarCompiler, max_threads=COMPILER_THREADS
    )
    kind = backend.XGrammarGrammarBackend
    kind.__init__ = _with_few_threads(kind.__init__)
    invalid = backend.InvalidGrammarObject
    kind.dispatch_json = _limited(kind.dispatch_json, schema_refusal, invalid)
    kind.dispatch_structural_tag = _limited(kind.dispatch_structural_tag, schema_refusal, invalid)
    kind.dispatch_regex = _limited(kind.dispatch_regex, pattern_refusal, invalid)
    kind.dispatch_ebnf = _limited(kind.dispatch_ebnf, grammar_refusal, invalid)
    grammar = backend.XGrammarGrammar
    grammar.fill_vocab_mask = _never_empty(grammar.fill_vocab_mask)


def _with_few_threads(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.executor.shutdown(wait=False)
        self.executor = ThreadPoolExecutor(COMPILATIONS_AT_ONCE, "grammar")

    return wrapped


def _limited(
    dispatch: Callable[[Any, str], Any], refusal: Callable[[str], str | None], invalid: Any
) -> Callable[[Any, str], Any]:
    @functools.wraps(dispatch)
    def wrapped(self: Any, key_string: str) -> Any:
        refused = refusal(key_string)
        return invalid(refused) if refused else dispatch(self, key_string)

    return wrapped


def _never_empty(fill: Callable[[Any, Any, int], None]) -> Callable[[Any, Any, int], None]:
    @functools.wraps(fill)
    def wrapped(self: Any, vocab_mask: Any, idx: int) -> None:
        fill(self, vocab_mask, idx)
        row = vocab_mask[idx]
        if not row.any():
            row.fill_(_ALL_ALLOWED)

    return wrapped
