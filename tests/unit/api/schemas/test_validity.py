"""What is no JSON schema is refused by the path of the keyword, before an engine sees it."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator, SchemaError

from api.errors import InvalidRequest
from api.schemas.held import KEYWORDS
from api.schemas.validity import _BELOW, _VALUES, check_valid


def inside(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, schema]}}}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "minLength": 1.0, "default": 3, "x-own": [3]},
        {"items": [{"type": "integer"}], "additionalItems": False, "$anchor": "a"},
        {"const": {"type": 3}, "enum": [{"type": 3}], "examples": [{"type": 3}]},
        {"properties": {"type": {"type": "string"}, "required": {"type": "boolean"}}},
        {"$ref": "#/properties/a/anyOf/0", "nullable": True},
        {"$ref": "#/$defs/x", "$id": "http://example.com/x"},
        {"$ref": "#x"},
        {"$ref": "#/$defs/a~1b"},
        {"minLength": 2, "maxLength": 2.0, "minItems": 0, "maxItems": 0},
    ],
)
def test_what_is_a_schema(schema: Any) -> None:
    check_valid("s", inside(schema))


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (3, ""),
        ([], ""),
        ({"type": "varchar"}, ".type"),
        ({"type": ["string", None]}, ".type"),
        ({"type": []}, ".type"),
        ({"properties": []}, ".properties"),
        ({"properties": {"b": 3}}, ".properties.b"),
        ({"items": "string"}, ".items"),
        ({"items": [{"minItems": -1}]}, ".items[0].minItems"),
        ({"prefixItems": []}, ".prefixItems"),
        ({"anyOf": {}}, ".anyOf"),
        ({"allOf": [{"required": True}]}, ".allOf[0].required"),
        ({"required": ["a", "a"]}, ".required"),
        ({"enum": "a"}, ".enum"),
        ({"minimum": "0"}, ".minimum"),
        ({"exclusiveMinimum": True}, ".exclusiveMinimum"),
        ({"maxLength": 1.5}, ".maxLength"),
        ({"multipleOf": 0}, ".multipleOf"),
        ({"pattern": 3}, ".pattern"),
        ({"$ref": {}}, ".$ref"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {}}}, ".$ref"),
        ({"$ref": "#/properties/a/anyOf/2"}, ".$ref"),
        ({"minLength": 5, "maxLength": 2}, ".minLength"),
        ({"minItems": 2, "maxItems": 1.0}, ".minItems"),
        ({"minimum": 0.5, "maximum": -1}, ".minimum"),
        ({"uniqueItems": "yes"}, ".uniqueItems"),
        ({"not": 1}, ".not"),
        ({"$defs": {"x": {"title": 3}}}, ".$defs.x.title"),
        ({"dependentRequired": {"a": "b"}}, ".dependentRequired"),
        ({"additionalProperties": None}, ".additionalProperties"),
    ],
)
def test_what_is_none(schema: Any, path: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_valid("s", inside(schema))
    assert refused.value.param == f"s.properties.a.anyOf[1]{path}"
    assert refused.value.code == "invalid_value"


VALUES: list[Any] = [
    None, True, 0, -1, 1, 1.0, 1.5, "", "string", "varchar", [], ["string"], ["a", "a"], [1], [{}],
    [True], {}, {"a": {}}, {"a": 3}, {"a": ["b"]}, {"a": ["b", "b"]}, {"type": 3}, [{"type": 3}],
]  # fmt: skip


@pytest.mark.parametrize("keyword", [*KEYWORDS, *_VALUES, *_BELOW])
def test_no_looser_than_a_validator_and_no_stricter(keyword: str) -> None:
    for value in VALUES:
        schema = {keyword: value}
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError:
            is_schema = False
        else:
            is_schema = True
        try:
            check_valid("s", schema)
        except InvalidRequest:
            assert not is_schema, schema
        else:
            # An array of items is what newer drafts call `prefixItems`, and is read as that.
            assert is_schema or keyword in ("items", "dependencies"), schema
