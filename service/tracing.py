"""Traces of OpenTelemetry, for whoever has a receiver for them; else nothing is loaded or made.

`OTEL_EXPORTER_OTLP_ENDPOINT` (or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`) switches them on; the SDK
reads its other settings (`OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, …) by itself.

One trace goes from a request at the gateway to the call of the engine; that of a batch's creation
also to each of its rows, through `traceparent` of the batch. No span holds a body, a key or the
words of an exception.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service import log_lines

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
HEADER: Final = "traceparent"

_NO_SPAN: Final = nullcontext(trace.INVALID_SPAN)
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_provider: Any = None

Facts = Mapping[str, str | int | float | bool]


def is_on() -> bool:
    """Whether this process makes spans."""
    return _provider is not None


def start(part: str) -> bool:
    """Make spans from now on if there is a receiver; call it after a fork, once per process."""
    global _provider
    if _provider is not None or not any(os.environ.get(name) for name in ENDPOINTS):
        return is_on()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = os.environ.get("OTEL_SERVICE_NAME", "coserve")
    resource = Resource.create({"service.name": named, "service.instance.id": part})
    _provider = TracerProvider(resource=resource)
    _provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    log_lines.add_context(ids)
    return True


def stop() -> None:
    """Send what was not sent yet; no spans from now on."""
    global _provider
    if _provider is not None:
        _provider.shutdown()
        _provider = None


def begin(name: str, kind: SpanKind, facts: Facts, parent: str | None = None) -> Span:
    """A span that the caller ends; one that records nothing while traces are off."""
    if _provider is None:
        return trace.INVALID_SPAN
    context = _PROPAGATOR.extract({HEADER: parent}) if parent else None
    made: Span = _provider.get_tracer("coserve").start_span(
        name, context=context, kind=kind, attributes=dict(facts)
    )
    return made


def fail(span: Span, error: BaseException) -> None:
    """Note that what a span is about failed: the kind of error, never its words."""
    span.set_status(Status(StatusCode.ERROR))
    span.set_attribute("error.type", type(error).__name__)


def span(
    name: str, kind: SpanKind, facts: Facts, parent: str | None = None
) -> AbstractContextManager[Span]:
    """A span over the block; what begins in it is below it.

    Args:
        name: What happens, without ids.
        kind: Who asks whom.
        facts: Attributes.
        parent: A `traceparent` of elsewhere; by default the span around this one.
    """
    return _NO_SPAN if _provider is None else _span(name, kind, facts, parent)


@contextmanager
def _span(name: str, kind: SpanKind, facts: Facts, parent: str | None) -> Iterator[Span]:
    made = begin(name, kind, facts, parent)
    with trace.use_span(made, record_exception=False, set_status_on_exception=False):
        try:
            yield made
        except BaseException as error:
            fail(made, error)
            raise
        finally:
            made.end()


def traceparent(of: Span | None = None) -> str | None:
    """The header that makes others continue a span, by default the present one."""
    if _provider is None:
        return None
    carrier: dict[str, str] = {}
    context = None if of is None else trace.set_span_in_context(of)
    _PROPAGATOR.inject(carrier, context)
    return carrier.get(HEADER)


def ids() -> dict[str, str]:
    """Trace and span of the present, for log lines; nothing while there are none."""
    if _provider is None:
        return {}
    present = trace.get_current_span().get_span_context()
    if not present.is_valid:
        return {}
    return {"trace_id": f"{present.trace_id:032x}", "span_id": f"{present.span_id:016x}"}
