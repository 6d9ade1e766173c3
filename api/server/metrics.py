"""Metrics: counters and histograms of one server, and their text for Prometheus.

Requests by method, template of the route and status, never by address: labels are few. Several server
processes share their numbers through the folder `PROMETHEUS_MULTIPROC_DIR`, where it is set.
Source: Prometheus, "Metric and label naming".
"""

import os
from collections.abc import Mapping
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

SHARED: Final = "PROMETHEUS_MULTIPROC_DIR"
MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0)


class Metrics:
    """Everything one server counts; in a registry of its own, so that two in a process stay apart."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "qplan_requests", "Requests answered.", ["method", "route", "status"], registry=registry
        )
        self.seconds = Histogram(
            "qplan_request_seconds",
            "From head to end of answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.under_way = Gauge(
            "qplan_requests_under_way", "Requests now.", registry=registry, multiprocess_mode="livesum"
        )
        self.received = Counter("qplan_received_bytes", "Bytes of bodies.", registry=registry)
        self.sent = Counter("qplan_sent_bytes", "Bytes of answers.", registry=registry)
        self.children = Counter(
            "qplan_children", "Children by task and how they ended.", ["task", "ending"], registry=registry
        )
        self.child_seconds = Histogram(
            "qplan_child_seconds", "Time of a child at work.", ["task"], buckets=_SECONDS, registry=registry
        )
        self.children_at_work = Gauge(
            "qplan_children_at_work", "Children now.", registry=registry, multiprocess_mode="livesum"
        )
        self.child_peak = Gauge(
            "qplan_child_peak_bytes",
            "Most memory any child ever had resident.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.jobs = Gauge(
            "qplan_jobs", "Jobs by state.", ["state"], registry=registry, multiprocess_mode="mostrecent"
        )
        self.kept_bytes = Gauge(
            "qplan_kept_bytes", "Bytes of everything kept.", registry=registry, multiprocess_mode="mostrecent"
        )
        self.blob_bytes = Gauge(
            "qplan_blob_bytes",
            "Deprecated: qplan_kept_bytes is its name.",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._peak = 0
        self._route: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, request: tuple[str, str, int], seconds: float, *, received: int, sent: int) -> None:
        """Count one request that ended: its method, route's template and status."""
        method, route, status = request
        key = (method if method in METHODS else "other", route, status)
        if key not in self._route:
            self._route[key] = (self.requests.labels(key[0], route, str(status)), self.seconds.labels(route))
        counter, histogram = self._route[key]
        counter.inc()
        histogram.observe(seconds)
        if received:
            self.received.inc(received)
        self.sent.inc(sent)

    def count_child(self, task: str, ending: str, seconds: float, peak: int) -> None:
        """Count one child that ended: `ok`, or the name of the problem; `peak` 0 where it did not say."""
        self.children.labels(task, ending).inc()
        self.child_seconds.labels(task).observe(seconds)
        if peak > self._peak:
            self._peak = peak
            self.child_peak.set(peak)

    def text(self, jobs: Mapping[str, int], kept_bytes: int) -> bytes:
        """Everything, as Prometheus reads it; the arguments are looked up when asked."""
        for state, count in jobs.items():
            self.jobs.labels(state).set(count)
        for gauge in (self.kept_bytes, self.blob_bytes):
            gauge.set(kept_bytes)
        return generate_latest(self._source())

    def _source(self) -> CollectorRegistry:
        if not os.environ.get(SHARED):
            return self.registry
        shared = CollectorRegistry()
        multiprocess.MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return shared
