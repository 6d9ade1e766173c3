"""Tracing: the request behind each piece of work, through jobs and workers, and spans for OpenTelemetry.

The id of a request and its span (`traceparent`) travel with a job in its row, and with a work to the worker
that has it. Spans are off unless `QPLAN_TRACES` names a collector; the SDK comes with the extra `tracing`.
They hold ids, routes, tasks and endings, never what a request or model says.
Source: W3C Trace Context; OTLP over HTTP.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Final

from planner.errors import InputError
from planner.installation import install_command
from planner.version import VERSION

VARIABLE: Final = "QPLAN_TRACES"
SECONDS: Final = 5
"""For a collector to take spans."""
_HEADER: Final = "traceparent"

Asked = Mapping[str, str]
"""`request_id`, and `traceparent` where there are spans."""

current: Final[ContextVar[Asked]] = ContextVar("qplan.asked", default={})  # noqa: B039 - nobody changes it
"""The request that this task works for."""


class Span:
    """A part of the work for a request; one that is not recorded takes no notice of what is set."""

    def __init__(self, recorded: Any = None, asked: Asked | None = None) -> None:
        self._recorded = recorded
        self.asked = asked or {}

    def set(self, **attributes: str | int) -> None:
        """Set attributes, whose names get the prefix `qplan.`."""
        if self._recorded is not None:
            self._recorded.set_attributes({f"qplan.{name}": item for name, item in attributes.items()})

    def rename(self, name: str) -> None:
        """Give it the name that is known only later."""
        if self._recorded is not None:
            self._recorded.update_name(name)


class _Spans:
    """The spans of this process, once `start` was called."""

    def __init__(self) -> None:
        self.tracer: Any = None
        self.provider: Any = None
        self.propagator: Any = None

    def start(self, address: str) -> None:
        """Send spans to a collector from now on."""
        if self.tracer is not None:
            return
        sdk, export = _part("sdk.trace"), _part("sdk.trace.export")
        about = {"service.name": "quant-planner", "service.version": VERSION}
        self.provider = sdk.TracerProvider(resource=_part("sdk.resources").Resource.create(about))
        otlp = _part("exporter.otlp.proto.http.trace_exporter")
        exporter = otlp.OTLPSpanExporter(endpoint=f"{address.rstrip('/')}/v1/traces", timeout=SECONDS)
        self.provider.add_span_processor(export.BatchSpanProcessor(exporter))
        self.propagator = _part("trace.propagation.tracecontext").TraceContextTextMapPropagator()
        self.tracer = self.provider.get_tracer("qplan", VERSION)

    def stop(self) -> None:
        """Send what waits."""
        if self.provider is not None:
            self.provider.shutdown()
            self.tracer = self.provider = None


SPANS: Final = _Spans()


@contextmanager
def span(name: str, asked: Asked, *, server: bool = False) -> Iterator[Span]:
    """Record a part of the work for a request; `asked` of what it gives is for the parts of this one."""
    if SPANS.tracer is None:
        yield Span(asked=asked)
        return
    kind = _part("trace").SpanKind
    before = SPANS.propagator.extract({_HEADER: asked.get(_HEADER, "")})
    recorded = SPANS.tracer.start_span(
        name, context=before, kind=kind.SERVER if server else kind.INTERNAL, start_time=time.time_ns()
    )
    within: dict[str, str] = {}
    SPANS.propagator.inject(within, context=_part("trace").set_span_in_context(recorded, before))
    try:
        yield Span(recorded, {**asked, **within})
    finally:
        recorded.end()


def start_from(environment: Mapping[str, str] = os.environ) -> None:
    """Send spans where `QPLAN_TRACES` says: in a worker, which has no settings of the server's.

    Raises:
      InputError: as `start`.
    """
    start(environment.get(VARIABLE, "").strip())


def start(address: str) -> None:
    """Send spans to a collector from now on; "" sends none.

    Raises:
      InputError: no address, or the extra is not installed.
    """
    if not address:
        return
    if not address.startswith(("http://", "https://")):
        raise InputError(f"{VARIABLE} is {address!r}", hint="http://HOST:4318, or leave it out")
    try:
        SPANS.start(address)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{VARIABLE} needs {error.name}, which is not installed", hint=install_command("tracing")
        ) from error


def _part(name: str) -> Any:
    """A module of OpenTelemetry, which only the extra `[tracing]` brings whole."""
    return import_module(f"opentelemetry.{name}")
