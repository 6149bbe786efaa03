"""Requests that somebody thought of: what once ended, starved or bent some server of models.

A quarter of what a run of the fuzzer sends are these, whole, streamed and as rows; with
`--by-hand` it sends them all and nothing else. Each is a prompt with one
thing wrong, or with one thing that is legal and hard to serve. Few of them have an answer; none may
end an engine, hold others up, or be told of in words of the code.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final

Body = dict[str, Any]
Request = tuple[str, Body]
"""A route and a body without its model."""

CHAT: Final = "/v1/chat/completions"
TEXT: Final = "/v1/completions"
RESPONSES: Final = "/v1/responses"
VECTORS: Final = "/v1/embeddings"

_HI: Final = [{"role": "user", "content": "Hi"}]
_NAN: Final = float("nan")
_INF: Final = float("inf")


def chat(**more: Any) -> Request:
    return CHAT, {"messages": _HI, "max_completion_tokens": 12, **more}


def text(**more: Any) -> Request:
    return TEXT, {"prompt": "Hi", "max_tokens": 12, **more}


def response(**more: Any) -> Request:
    return RESPONSES, {"input": "Hi", "max_output_tokens": 16, "store": False, **more}


def tool(name: Any, parameters: Any = None, **more: Any) -> Body:
    parameters = {"type": "object"} if parameters is None else parameters
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


def form(schema: Any, *, strict: bool = False) -> Body:
    inner = {"name": "form", "schema": schema, "strict": strict}
    return {"type": "json_schema", "json_schema": inner}


# --- Schemas.


def nested(depth: int) -> Body:
    """An object in an object in an object."""
    schema: Body = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def arrays(depth: int, **more: Any) -> Body:
    schema: Body = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema, **more}
    return schema


def _string(**more: Any) -> Body:
    return {"type": "string", **more}


def _object(properties: Body, *required: str, **more: Any) -> Body:
    return {"type": "object", "properties": properties, "required": [*required], **more}


_A_IS_B: Final = {
    "a": _object({"b": {"$ref": "#/$defs/b"}}, "b"),
    "b": _object({"a": {"$ref": "#/$defs/a"}}, "a"),
}
SCHEMAS: Final[tuple[Any, ...]] = (
    # Nothing that ends satisfies them.
    {"$ref": "#"},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    {"$ref": "#/$defs/a", "$defs": _A_IS_B},
    _object({"next": {"$ref": "#"}}, "next"),
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    {"anyOf": [{"$ref": "#"}]},
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "integer"}]},
    False,
    {"not": {}},
    {"enum": []},
    {"type": "array", "items": False, "minItems": 1},
    {"type": "array", "minItems": 5, "maxItems": 2},
    {"type": "integer", "minimum": 5, "maximum": 1},
    {"type": "integer", "minimum": 2, "exclusiveMaximum": 3, "exclusiveMinimum": 2},
    _string(minLength=5, maxLength=2),
    _string(pattern="^[^\\x00-\\uffff]$"),
    _object({"a": False}, "a"),
    {"type": []},
    {"type": "array", "prefixItems": [False], "minItems": 1},
    # They grow when they are compiled.
    {"type": "array", "minItems": 10**8},
    {"type": "array", "minItems": 10**5, "maxItems": 10**8},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 10**9},
    arrays(4, minItems=300),
    arrays(8, minItems=20, maxItems=40),
    arrays(30),
    _string(minLength=10**9),
    _string(maxLength=10**9),
    _string(minLength=2_000, maxLength=19_000),
    {"type": "array", "items": _string(maxLength=1000), "maxItems": 1000},
    {"type": "array", "prefixItems": [{"type": "integer"}] * 1_900},
    _string(pattern="a{1,100000}"),
    _string(pattern="^(a{1,30}){1,30}$"),
    _string(pattern="^((a{1,99}){1,99}){1,99}$"),
    _string(pattern="^(((a*)*)*)*$"),
    _string(pattern="^(a|a|a|a)*(a|aa)+b$"),
    _string(pattern="^(?:[a-z]+)+@(?:[a-z]+\\.)+$"),
    _string(pattern="^" + "(a|b)?" * 150 + "$"),
    _string(pattern="[a-z]?" * 150 + "[a-z]{100}"),
    _string(pattern="^(" + "|".join(f"w{i}" for i in range(150)) + "){1,9}$"),
    {"enum": [f"value {i}" for i in range(1_900)]},
    {"enum": ["x" * 3_000 + str(i) for i in range(20)]},
    {"anyOf": [{"const": i} for i in range(900)]},
    {"anyOf": [_object({f"k{i}": {"type": "integer"}}, f"k{i}") for i in range(200)]},
    {"oneOf": [_object({"k": {"const": i}, "v": {}}, "k") for i in range(150)]},
    {"anyOf": [{"anyOf": [{"anyOf": [{"type": "integer"}] * 12}] * 12}] * 10},
    _object({f"p{i}": _string() for i in range(900)}),
    _object({f"p{i}": _string() for i in range(300)}, *(f"p{i}" for i in range(300))),
    _object({f"p{i}": {"$ref": "#"} for i in range(60)}),
    _object({"a": {"$ref": "#/$defs/a"}}, **{"$defs": {
        "a": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 3, "maxItems": 9}}}),
    nested(14),
    nested(31),
    nested(200),
    {"type": "integer", "minimum": -(10**18), "maximum": 10**18},
    {"type": "integer", "minimum": -(10**40)},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1_700},
    {"type": "number", "multipleOf": 1e-300},
    {"type": "number", "minimum": 1e308, "maximum": 1.1e308},
    {"type": "array", "uniqueItems": True, "items": {"enum": [*range(500)]}, "minItems": 400},
    {"type": "object", "patternProperties": {"^(a+)+$": {}}, "minProperties": 10**9},
    {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {}}},
    {"type": ["string", "integer", "array", "object", "null", "boolean", "number"],
     "minLength": 900, "minItems": 900},
    # They are odd.
    {}, True, [], "object", 7, None,
    {"type": "string", "pattern": "(?=a)b"}, {"type": "string", "pattern": "(?<!x)y"},
    {"type": "string", "pattern": "(?P<n>a)(?P=n)"}, {"type": "string", "pattern": "\\1"},
    {"type": "string", "pattern": "(?i)abc"}, {"type": "string", "pattern": "a" * 1_500},
    {"type": "string", "pattern": "["}, {"type": "string", "pattern": "*"},
    {"type": "string", "pattern": "\\p{L}+"}, {"type": "string", "pattern": "\\"},
    {"type": "string", "pattern": "\x00"}, {"type": "string", "pattern": "🙂{1,5}"},
    {"type": "string", "pattern": "a{5,2}"}, {"type": "string", "pattern": "a{99999999999999}"},
    {"type": "string", "format": "\x00"}, {"type": "string", "format": "x" * 5_000},
    {"$ref": "#/$defs/\x00"}, {"$ref": "file:///etc/passwd"}, {"$ref": "#/properties/a"},
    {"$ref": "#/$defs/a/items", "$defs": {"a": {"type": "array", "items": {"type": "null"}}}},
    {"$dynamicRef": "#x"}, {"$id": "http://127.0.0.1:9/", "type": "object"},
    {"const": {"a": [1, {"b": "\u2028"}]}}, {"const": _NAN}, {"const": 10**400},
    {"enum": [1.0, 1, True, "1"]}, {"enum": ["\ud800"]},
    {"type": "string", "minLength": -1}, {"type": "string", "maxLength": 2.5},
    {"type": "array", "minItems": 1e300}, {"type": "integer", "minimum": _INF},
    {"type": "integer", "multipleOf": 0}, {"type": "integer", "multipleOf": 1e-320},
    {"type": "object", "required": ["a"] * 500}, {"type": "object", "required": "a"},
    _object({"": {}, "\n": {}, '"': {}, "\\": {}, "\ud800": {}, "🙂": {}}, ""),
    _object({"a" * 5_000: {}}, "a" * 5_000),
    {"type": "object", "properties": []}, {"anyOf": {}}, {"items": [[[]]]},
    {"definitions": {"a": {"type": "null"}}, "$ref": "#/definitions/a"},
)  # fmt: skip

# --- Patterns and grammars.

PATTERNS: Final[tuple[Any, ...]] = (
    "a{1,100000}", "a{100000}", "(a{1,999}){1,999}", "((a{9}){9}){9}", "(((a+)+)+)+$",
    "(a*)*b", "(?:a?){500}a{500}", ".{1,999}", "[\\s\\S]{900}", "(\\w+\\s?){1,60}!",
    "|".join(f"word{i}" for i in range(100)), "(" * 300 + ")" * 300, "(a" * 200 + ")?" * 200,
    "(?=x)y", "(?!x)y", "(?<=x)y", "(?<n>a)\\k<n>", "(a)\\1", "\\b", "\\B", "^", "$", "$a^",
    "", "|", "||", "()", "[]", "[^]", "[z-a]", "[", "]", "{", "}", "a{", "a{,}", "a{1", "a**",
    "\\", "\\x", "\\u{110000}", "\\ud800", "\x00", "a\x00b", "[\x00-\U0010ffff]", "\\p{Greek}",
    "[^\\x00-\\U0010ffff]", "🙂+", "é{1,400}", "[[:alpha:]]+", "(?i)A", "(?#c)a", "\\Qa\\E",
    7, [], {}, ["a"], True,
)  # fmt: skip
GRAMMARS: Final[tuple[Any, ...]] = (
    "root ::= root", "root ::= root root", 'root ::= root "a"', 'root ::= "a" root',
    'root ::= root "a" | "b"', 'root ::= a\na ::= b\nb ::= a', 'root ::= a "x"\na ::= root',
    'root ::= (root)?', 'root ::= (root)*', "root ::= (root | root)*", 'root ::= ""',
    'root ::= ("")*', 'root ::= (("a"?)*)*', 'root ::= "" | root', "root ::= a", "root ::=",
    "root", "", " ", "\n", "::=", "root ::= [", 'root ::= "', "root ::= (", "root ::= )",
    'start ::= "x"', 'root ::= "a"\nroot ::= "b"', 'root ::= "a" # comment',
    "root ::= [a-z]{1,100000}", "root ::= [a-z]{1,999}", 'root ::= ("a"{1,99}){1,99}',
    'root ::= "a"{0}', 'root ::= "a"{5,2}', 'root ::= "a"{-1}', "root ::= [z-a]", "root ::= [^]",
    "root ::= [^\\x00-\\U0010ffff]", 'root ::= "\\ud800"', 'root ::= "\x00"', "root ::= \x00",
    "\n".join([f'r{i} ::= r{i + 1} | "{i}"' for i in range(300)]) + '\nr300 ::= "e"\nroot ::= r0',
    "\n".join([f"r{i} ::= r{i + 1} r{i + 1}" for i in range(30)]) + '\nr30 ::= "e"\nroot ::= r0',
    "\n".join([f"r{i} ::= r{i + 1}? r{i + 1}?" for i in range(20)]) + '\nr20 ::= "e"?\nroot ::= r0',
    "root ::= " + " | ".join(f'"w{i}"' for i in range(1_500)),
    "root ::= " + "(" * 400 + '"a"' + ")" * 400, "root ::= " + '"a"? ' * 900,
    'root ::= x | y\nx ::= "a" x\ny ::= "b" y', 'root ::= "a" b\nb ::= c\nc ::= b',
    "root ::= a+\na ::= a* b*\nb ::= a?", 'root ::= (="a" "b")', 'root ::= TagDispatch(("a", b))',
    7, [], {}, True,
)  # fmt: skip
CHOICES: Final[tuple[Any, ...]] = (
    [], [""], ["a", ""], ["a"] * 1_000, [f"choice {i}" for i in range(1_025)],
    [f"choice {i}" for i in range(800)], ["x" * 20_000], ["\x00"], ["\ud800"], ['"', "\\", "\n"],
    [1], [None], [["a"]], "a", {"a": 1}, ["🙂" * 100, "🙂" * 101],
)  # fmt: skip

# --- Everything else of a prompt.

STOPS: Final[tuple[Any, ...]] = (
    "", [], [""], ["x", ""], ["a"] * 4, ["a"] * 5, ["s"] * 5_000, "x" * 100_000, ["x" * 50_000] * 4,
    "🙂" * 2_000, "\x00", "\ud800", ["\u2028"], "\ufffd", [None], [1], [["a"]], {"a": 1}, 7, True,
    " ", "\n", ["<|im_end|>", "</s>"], "e\u0301",
)  # fmt: skip
BIASES: Final[tuple[Any, ...]] = (
    {"0": _NAN}, {"0": _INF}, {"0": -_INF}, {"0": 101}, {"0": -101}, {"0": "1"}, {"0": None},
    {"-1": 1}, {"49152": 1}, {"1e3": 1}, {"0x1": 1}, {" 1": 1}, {"²": 1}, {"١": 1}, {"": 1},
    {"9" * 400: 1}, {"00000001": 1, "1": -1}, {str(i): -100 for i in range(49_152)},
    {str(i): 100 for i in range(3_000)}, [], [[1, 2]], "1", 5, True, {"0": True}, {"0": 1e-320},
)  # fmt: skip
NUMBERS: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    ("n", (0, -1, 129, 10**9, 2**63, 1.0, 1.5, "1", True, _NAN, [1], 128)),
    ("max_tokens", (0, -1, 8_192, 10**9, 2**31, 2**63, 2**64, 10**400, 8.0, 0.5, "9", _NAN, _INF)),
    ("min_tokens", (-1, 13, 10**9, 2**63, 1.0, "1", _NAN)),
    ("temperature", (-1, -0.0, 1e-320, 1e-9, 2.1, 1e308, _NAN, _INF, "0", True, [0])),
    ("top_p", (0, -0.0, 1e-320, -1, 1.1, _NAN, "1", 1e-7)),
    ("top_k", (0, -1, -2, 10**9, 2**31, 2**63, 1.0, 0.5, _NAN, "1")),
    ("min_p", (-1, 0, 1, 1.1, 1e-320, _NAN, "0")),
    ("repetition_penalty", (0, -1, 1e-320, 1e-9, 2, 2.1, _NAN, _INF, "1")),
    ("presence_penalty", (-2, 2, 2.1, -2.1, _NAN, "1")),
    ("frequency_penalty", (-2, 2, 2.1, -2.1, _NAN, "1")),
    ("seed", (-1, -(2**63), 2**63 - 1, 2**63, 2**64, 1.5, 1e300, _NAN, "1", True)),
    ("stop_token_ids", ([], [-1], [49_152], [0] * 65, [2**31], [2**63], [1.0], ["1"], [None], 1)),
)
_ONE_PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def _png(width: int, height: int, data: bytes) -> bytes:
    """A PNG of one bit a pixel that says it is so large."""

    def chunk(kind: bytes, inner: bytes) -> bytes:
        check = zlib.crc32(kind + inner)
        return struct.pack(">I", len(inner)) + kind + inner + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def _url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


IMAGES: Final[tuple[Any, ...]] = (
    _url(_ONE_PIXEL), _url(_ONE_PIXEL[:30]), _url(_ONE_PIXEL, "image/jpeg"),
    _url(_ONE_PIXEL, "text/html"), _url(_ONE_PIXEL, "image/svg+xml"), _url(b""),
    _url(_png(0, 0, b"")), _url(_png(0, 9, zlib.compress(b""))),
    _url(_png(2**31 - 1, 2**31 - 1, zlib.compress(b""))),
    _url(_png(60_000, 60_000, zlib.compress(bytes(10**7), 9))),
    _url(_png(9_000, 9_000, zlib.compress(bytes(1_126 * 9_000), 9))),
    _url(b"GIF89a" + b"\xff" * 50), _url(b"\xff\xd8\xff\xe0" + b"\0" * 50, "image/jpeg"),
    _url(b"RIFF\xff\xff\xff\xffWEBPVP8 ", "image/webp"), _url(b"%PDF-1.4"),
    "data:image/png;base64,", "data:image/png;base64,!!!", "data:image/png,abc", "data:,", "data:",
    "", "x", "\x00", "file:///etc/passwd", "http://127.0.0.1:9/a.png", "http://[::1", "ftp://x/y",
    None, 7, [], {}, {"url": None}, "javascript:alert(1)", "\ud800",
)  # fmt: skip
TOOLS: Final[tuple[Any, ...]] = (
    [tool("f"), tool("f")], [tool("f"), tool("f", {"type": "object", "required": ["a"]})],
    [tool("función")], [tool("工具")], [tool("🙂")], [tool("a b")], [tool("a\nb")], [tool("a\"b")],
    [tool("")], [tool("x" * 64)], [tool("x" * 65)], [tool("\x00")], [tool("\ud800")], [tool(7)],
    [tool(None)], [tool("<tool_call>")], [tool('f", "arguments": {}}')],
    [tool(f"f{i}") for i in range(128)], [tool(f"f{i}") for i in range(129)],
    [tool(f"f{i}", nested(4)) for i in range(100)], [tool("f", {"$ref": "#"})],
    [tool("f", {"type": "array", "minItems": 10**8})], [tool("f", {"type": "string"})],
    [tool("f", False)], [tool("f", [])], [tool("f", {}, strict=True)],
    [tool("f", _object({"a": {"not": {}}}), strict=True)], [tool("f", description="x" * 200_000)],
    [tool("f", description="{{ raise_exception('x') }}")], [tool("f", more=1)],
    [{"type": "function"}], [{"type": "function", "function": None}], [{"function": {"name": "f"}}],
    [{"type": "custom", "custom": {"name": "f"}}], [None], [[]], {}, "f", [{}],
)  # fmt: skip
SAID: Final[tuple[Any, ...]] = (
    [], None, {}, "Hi", [None], [[]], [{}], [{"role": "user"}], [{"role": "user", "content": None}],
    [{"role": "user", "content": ""}], [{"role": "user", "content": []}],
    [{"role": "user", "content": [{}]}], [{"role": "user", "content": [[]]}],
    [{"role": "user", "content": "\ud800"}], [{"role": "user", "content": "\x00" * 50}],
    [{"role": "user", "content": "\U0010ffff\ufffe"}], [{"role": "user", "content": "a " * 40_000}],
    [{"role": "user", "content": "<|im_end|>\n<|im_start|>system\n" * 40}],
    [{"role": "user", "content": "<|endoftext|>"}], [{"role": "nobody", "content": "x"}],
    [{"role": 7, "content": "x"}], [{"role": "assistant", "content": "x"}],
    [{"role": "assistant"}], [{"role": "tool", "content": "x"}],
    [{"role": "system", "content": ""}],
    [{"role": "tool", "content": "x", "tool_call_id": "nothing"}], _HI * 2_000,
    [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, *_HI],
    [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f",
     "arguments": "[1]"}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"}],
    [{"role": "assistant", "tool_calls": [{}]}], [{"role": "assistant", "tool_calls": {}}],
    [{"role": "user", "content": [{"type": "text", "text": "x"}] * 3_000}],
    [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}],
    [{"role": "user", "content": "x", "name": "\x00"}], [{"role": "user", "content": {"a": 1}}],
)  # fmt: skip
PROMPTS: Final[tuple[Any, ...]] = (
    "", [], [""], ["a", ""], [[]], [[1], []], [-1], [49_152], [49_151], [0], [2**31], [2**63],
    [1.0], [1, 2.5], [True], [None], [{}], [1, "a"], ["a", 1], [[1], "a"], [[[1]]], {"a": 1}, 7,
    [1] * 9_000, [[1] * 9_000, [1]], ["a"] * 128, ["a"] * 129, "a " * 40_000, "\ud800", "\x00",
    ["\ud800"], [_NAN], [1e300], "<|im_end|>", list(range(300)), [[0]] * 40,
)  # fmt: skip
MORE: Final[tuple[Request, ...]] = (
    chat(logprobs=True, top_logprobs=21), chat(logprobs=True, top_logprobs=-1),
    chat(logprobs=True, top_logprobs=20), chat(logprobs=True, top_logprobs=1.0),
    chat(logprobs=1), chat(top_logprobs=5), chat(logprobs=False, top_logprobs=5),
    text(logprobs=6), text(logprobs=-1), text(logprobs=5, echo=True), text(logprobs=True),
    text(logprobs=0, echo=True, max_tokens=0), text(echo=True, max_tokens=0),
    text(echo=True, prompt=[1, 2, 3], logprobs=1, max_tokens=0), text(best_of=20), text(best_of=21),
    text(best_of=2, n=3), text(best_of=-1), text(best_of=1.0), text(suffix="x"), text(suffix=7),
    text(n=3, best_of=3, logprobs=5, echo=True), text(prompt=["a"] * 60, n=3),
    chat(n=128, max_completion_tokens=1), chat(max_tokens=5, max_completion_tokens=5000),
    chat(min_tokens=12, stop=["a", "e", " "]), chat(min_tokens=12, stop_token_ids=[*range(60)]),
    chat(ignore_eos=True, response_format={"type": "json_object"}), chat(ignore_eos="yes"),
    chat(skip_special_tokens=False, stop="<|im_end|>"), chat(response_format={"type": "grammar"}),
    chat(response_format={"type": "json_schema"}), chat(response_format="json"),
    chat(regex="a", ebnf='root ::= "b"'), chat(response_format=form({}), regex="a+"),
    chat(guided_json="{"), chat(guided_json="[]"), chat(guided_json=nested(100)),
    chat(guided_regex="a", guided_choice=["b"]),
    chat(structured_outputs={"json": {}, "regex": "a"}),
    chat(structured_outputs={"choice": []}), chat(structured_outputs=[]),
    chat(stream_options={"include_usage": True}), chat(stream="yes"), chat(stream_options=[]),
    chat(user="\ud800"), chat(metadata={"a": 1}), chat(metadata={str(i): "x" for i in range(17)}),
    chat(service_tier="nothing"), chat(reasoning_effort="max"), chat(reasoning_effort="utmost"),
    chat(reasoning={"effort": []}), chat(chat_template_kwargs={"enable_thinking": True}),
    chat(chat_template_kwargs={"chat_template": "{{ x }}"}), chat(chat_template="{{ 7 * 7 }}"),
    chat(continue_final_message=True), chat(tool_choice="required"), chat(tool_choice={}),
    chat(tools=[tool("f")], tool_choice={"type": "function", "function": {"name": "g"}}),
    chat(tools=[tool("f")], tool_choice="required", logprobs=True),
    chat(functions=[{"name": "f"}] * 2, function_call={"name": "f"}), chat(functions={}),
    chat(rid="a"), chat(priority=-9), chat(custom_params={"coserve": {}}), chat(lora_path="/etc"),
    chat(session_params={}), chat(return_hidden_states=True), chat(input_embeds=[[0.1]]),
    chat(custom_logit_processor="x"), chat(bootstrap_host="x"), chat(data_parallel_rank=7),
    response(max_output_tokens=15), response(max_output_tokens=0), response(top_logprobs=21),
    response(previous_response_id="resp_x"), response(conversation="conv_x"),
    response(include=["x"]),
    response(input=[]), response(input=[{}]), response(input=[{"type": "reasoning"}]),
    response(input=[{"type": "function_call_output", "call_id": "x", "output": "y"}]),
    response(input=[{"role": "user", "content": [{"type": "input_image"}]}]), response(input=7),
    response(text={"format": {"type": "json_schema", "name": "f", "schema": {"$ref": "#"}}}),
    response(text={"format": {"type": "json_schema", "name": "f",
                              "schema": {"type": "array", "minItems": 10**8}, "strict": True}}),
    response(tools=[{"type": "function", "name": "f"}] * 2, tool_choice="required"),
    response(tools=[{"type": "web_search"}], tool_choice="required"), response(background="yes"),
    response(tools=[{"type": "namespace", "name": "n", "tools": []}]), response(truncation="x"),
    response(instructions="\ud800"), response(max_tool_calls=-1), response(prompt={"id": "x"}),
    (VECTORS, {"input": "Hi"}), (VECTORS, {"input": [49_152]}), (VECTORS, {"input": [1.0]}),
    (VECTORS, {"input": "Hi", "dimensions": 10**9}), (VECTORS, {"input": ["a"] * 2_049}),
    (VECTORS, {"input": "Hi", "encoding_format": "x"}), (VECTORS, {}), (VECTORS, {"input": [[]]}),
)  # fmt: skip


def _fields() -> Iterator[tuple[str, Any]]:
    """Fields of chat and of completions with each of their values."""
    whole = (
        ("regex", PATTERNS), ("ebnf", GRAMMARS), ("guided_choice", CHOICES), ("stop", STOPS),
        ("logit_bias", BIASES), *NUMBERS,
    )  # fmt: skip
    for name, values in whole:
        for value in values:
            yield name, value


def _requests() -> Iterator[Request]:
    for place, schema in enumerate(SCHEMAS):
        yield chat(response_format=form(schema, strict=place % 3 == 0))
        yield chat(tools=[tool("f", schema)], tool_choice=("required", "auto")[place % 2])
    for place, (name, value) in enumerate(_fields()):
        yield (chat, text)[place % 2](**{name: value})
    for image in IMAGES:
        part = {"type": "image_url", "image_url": {"url": image}}
        yield chat(messages=[{"role": "user", "content": [part]}])
    for place, tools in enumerate(TOOLS):
        yield chat(tools=tools, tool_choice=("required", "auto")[place % 2])
    yield from (chat(messages=messages) for messages in SAID)
    yield from (text(prompt=prompt) for prompt in PROMPTS)
    yield from MORE


REQUESTS: Final[tuple[Request, ...]] = tuple(sorted(_requests(), key=itemgetter(0)))
"""By their routes."""
