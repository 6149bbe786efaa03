"""The engine's own look at the numbers of one request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from api.engine_errors import from_engine
from engine_adapter.sglang.numbers import end_alone, refusal, refuse_alone

VOCABULARY = 100
BEYOND: list[tuple[list[int], dict[str, Any], int, str]] = [
    ([100], {}, 0, "prompt"),
    ([1, -1], {}, 0, "prompt"),
    ([1], {"stop_token_ids": {101}}, 0, "stop_token_ids"),
    ([1], {"stop_token_ids": [-5]}, 0, "stop_token_ids"),
    ([1], {"logit_bias": {"100": 1.0}}, 0, "logit_bias"),
    ([1], {"min_new_tokens": 1 << 31}, 0, "min_tokens"),
    ([1], {"top_k": 1 << 31}, 0, "top_k"),
    ([1], {"sampling_seed": 1 << 63}, 0, "seed"),
    ([1], {"n": 0}, 0, "n"),
    ([1], {"beam_width": 2}, 0, "beam_width"),
    ([1], {}, 101, "logprobs"),
]


@pytest.mark.parametrize(("ids", "params", "num_logprobs", "field"), BEYOND)
def test_a_number_beyond_the_model(
    ids: list[int], params: dict[str, Any], num_logprobs: int, field: str
) -> None:
    """The words lead to the field's name at the gateway, whatever the endpoint calls a prompt."""
    why = refusal(ids, params.get, num_logprobs, VOCABULARY)
    assert why is not None
    error = from_engine(400, {"error": {"message": why}}, prompt_param="input")
    expected = "input" if field == "prompt" else field
    assert (error.param, error.code) == (expected, "invalid_value")
    assert f"'{expected}'" in error.message


def test_the_last_that_the_model_has() -> None:
    params = {"stop_token_ids": {99}, "logit_bias": {"99": 1}, "top_k": -1, "sampling_seed": 7}
    assert refusal([0, 99], params.get, 5, VOCABULARY) is None


def request(**changes: Any) -> Any:
    """What SGLang's tokenizer process validates."""
    told: dict[str, Any] = {
        "input_embeds": None,
        "sampling_params": {},
        "contains_mm_input": lambda: False,
    }
    return SimpleNamespace(**{**told, **changes})


MANAGER = SimpleNamespace(model_config=SimpleNamespace(vocab_size=VOCABULARY))


def test_the_tokenizers_process_refuses_it() -> None:
    with pytest.raises(ValueError, match="'prompt'"):
        refuse_alone(None, MANAGER, request(), [100])
    assert refuse_alone("told", MANAGER, request(), [99]) == "told"


def test_marks_of_images_are_no_tokens() -> None:
    image = request(contains_mm_input=lambda: True)
    assert refuse_alone(None, MANAGER, image, [1 << 40]) is None


class Waiting(SimpleNamespace):
    """What SGLang's scheduler lets wait."""

    def set_finish_with_abort(self, why: str) -> None:
        self.to_finish, self.origin_input_ids = why, [0]


def test_the_scheduler_ends_it_without_its_numbers() -> None:
    params = SimpleNamespace(
        stop_token_ids={100}, logit_bias=None, sampling_seed=3, min_new_tokens=2, top_k=5
    )
    req = Waiting(
        to_finish=None, multimodal_inputs=None, input_embeds=None, origin_input_ids=[1],
        logprob=SimpleNamespace(top_logprobs_num=0), sampling_params=params,
    )  # fmt: skip
    end_alone(req, VOCABULARY)
    assert "'stop_token_ids'" in req.to_finish
    assert (params.stop_token_ids, params.min_new_tokens) == (None, 0)
    end_alone(req, 0)  # it has ended: nothing more is said of it
    assert "'stop_token_ids'" in req.to_finish
