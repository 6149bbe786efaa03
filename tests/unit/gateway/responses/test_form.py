"""An error of the chat call behind a response speaks of the response's own fields."""

from __future__ import annotations

from engine_adapter.wire.errors import InvalidRequest
from gateway.responses.form import renamed


def test_words_and_param_name_the_field_of_the_response() -> None:
    said = "The engine cannot compile the schema in 'response_format'."
    error = renamed(InvalidRequest(said, param="response_format"))
    assert (error.message, error.param) == (
        "The engine cannot compile the schema in 'text.format'.",
        "text.format",
    )


def test_an_error_of_no_field_is_left_alone() -> None:
    error = renamed(InvalidRequest("Too 'None' for words."))
    assert (error.message, error.param) == ("Too 'None' for words.", None)
