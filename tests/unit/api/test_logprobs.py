"""Log probabilities leave in the form that OpenAI documents, whatever the engine calls a token."""

from __future__ import annotations

from typing import Any

import pytest

from api.logprobs import UNLIKELY, CompletionLogprobs, chat_logprobs

LEAST = -3.4028234663852886e38
"""What SGLang says of a token that a grammar forbids."""

# SGLang's lists: its offsets are all -1, `top_logprobs` is empty for `logprobs: 0`.
ENGINE: dict[str, Any] = {
    "text_offset": [-1, -1, -1],
    "token_logprobs": [-0.5, -1.0, -2.0],
    "tokens": ["Ca", " é", "!"],
    "top_logprobs": [{"Ca": -0.5}, None, {"!": -2.0, "?": -3.0}],
}


def of(*, only_sampled: bool = False, **more: Any) -> dict[str, Any]:
    made = CompletionLogprobs(only_sampled=only_sampled).of({**ENGINE, **more})
    assert made is not None
    return made


@pytest.mark.contract("L-06")
def test_a_completion_has_offsets_and_its_own_tokens() -> None:
    assert of() == {
        "text_offset": [0, 2, 4],
        "token_logprobs": [-0.5, -1.0, -2.0],
        "tokens": ["Ca", " é", "!"],
        "top_logprobs": [{"Ca": -0.5}, {" é": -1.0}, {"!": -2.0, "?": -3.0}],
    }
    assert CompletionLogprobs(only_sampled=False).of(None) is None


@pytest.mark.contract("L-06")
@pytest.mark.parametrize("top", [[], [{"x": -0.1}, {"y": -0.1}, {"?": -0.1}]])
def test_the_sampled_token_alone_is_listed_where_no_others_were_asked_for(top: Any) -> None:
    listed = of(only_sampled=True, top_logprobs=top)["top_logprobs"]
    assert listed == [{"Ca": -0.5}, {" é": -1.0}, {"!": -2.0}]


@pytest.mark.contract("L-06")
@pytest.mark.parametrize("only_sampled", [True, False])
def test_the_first_token_of_an_echo_has_no_probability(only_sampled: bool) -> None:
    echoed = of(
        only_sampled=only_sampled,
        token_logprobs=[None, -1.0, -2.0],
        top_logprobs=[None, {"x": -0.1}],
    )
    assert echoed["token_logprobs"] == [None, -1.0, -2.0]
    other = {} if only_sampled else {"x": -0.1}
    assert echoed["top_logprobs"] == [None, {**other, " é": -1.0}, {"!": -2.0}]


@pytest.mark.contract("L-06")
def test_offsets_count_characters_also_where_tokens_are_parts_of_them() -> None:
    events = [["a", "bytes:\\xf0\\x9f"], ["bytes:\\x98\\x80", "b"], ["bytes:\\xzz", "c"]]
    logprobs = CompletionLogprobs(only_sampled=True)
    offsets = []
    for tokens in events:
        made = logprobs.of({"tokens": tokens, "token_logprobs": [-1.0] * len(tokens)})
        assert made is not None
        offsets += made["text_offset"]
    assert offsets == [0, 1, 1, 2, 3, 13]  # the text is "a😀b", then a token that looks like one


def test_what_is_as_good_as_impossible_has_openais_value() -> None:
    other = {"token": "b", "logprob": LEAST, "bytes": [98]}
    token = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": [other]}
    bounded = chat_logprobs({"content": [token]})
    assert bounded is not None
    assert bounded["content"][0]["top_logprobs"][0]["logprob"] == UNLIKELY
    assert of(top_logprobs=[{"Ca": -0.5, "x": LEAST}])["top_logprobs"][0]["x"] == UNLIKELY
    assert chat_logprobs(None) is None
