"""Prometheus metrics of every followed room, named like vLLM's so that its dashboards need little change.

Everything is read off the event stream: the engine pays nothing, and the numbers are those on the screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from engine.state import ENDED_STATES, block_counts
from viz.hub import Hub

PREFIX = "batchscope:"
TTFT_BUCKETS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.5, 5, 10, 20, 40, 80)
ITL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.5)
E2E_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)

#: name → (counter of the state document, help)
COUNTERS = {
    "prompt_tokens": ("prompt_tokens", "Prefill tokens computed."),
    "generation_tokens": ("output_tokens", "Tokens generated."),
    "num_preemptions": (("offloads", "soft_resets"), "Requests that lost their blocks (offload or soft reset)."),
    "prefix_cache_queries": ("prefix_query_tokens", "Prompt tokens looked up in the prefix cache."),
    "prefix_cache_hits": ("prefix_hit_tokens", "Prompt tokens found in the prefix cache."),
    "engine_steps": ("steps", "Steps launched."),
    "padding_tokens": ("padding_tokens", "Query rows that were only padding."),
    "recomputed_tokens": ("recomputed_tokens", "Tokens computed again after a soft reset."),
}


class Metrics:
    """Histograms fed by a listener on a feed, and a collector that reads the states when it is asked."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.registry = CollectorRegistry()
        labels = ("room", "model_name")
        self.ttft = Histogram(
            f"{PREFIX}time_to_first_token_seconds",
            "From arrival to the first token.",
            labels,
            buckets=TTFT_BUCKETS,
            registry=self.registry,
        )
        self.itl = Histogram(
            f"{PREFIX}inter_token_latency_seconds",
            "Between two tokens of a request.",
            labels,
            buckets=ITL_BUCKETS,
            registry=self.registry,
        )
        self.e2e = Histogram(
            f"{PREFIX}e2e_request_latency_seconds",
            "From arrival to the end.",
            labels,
            buckets=E2E_BUCKETS,
            registry=self.registry,
        )
        self.ended = Counter(
            f"{PREFIX}request_success", "Requests that ended, by reason.", (*labels, "finished_reason"), registry=self.registry
        )
        self.restarts = Gauge(f"{PREFIX}engine_restarts", "Times the engine process was started again.", registry=self.registry)
        self.viewers = Gauge(f"{PREFIX}viewers", "Connected browsers.", registry=self.registry)
        self.registry.register(self)
        self._last_token: dict[str, float] = {}

    def listen(self, message: dict[str, Any]) -> None:
        """Observe one message of the main room."""
        if message["type"] == "snapshot":
            self._last_token.clear()
            return
        feed = self.hub.feeds.get(message.get("room", ""))
        if feed is None or "time" not in message:
            return
        labels = (feed.room, str(feed.state["engine"].get("model")))
        requests, now = feed.state["requests"], message["time"]
        for token in message.get("tokens", ()):
            request = requests.get(token["id"])
            before = self._last_token.get(token["id"])
            if before is not None:
                self.itl.labels(*labels).observe(now - before)
            elif request is not None and request["outputs"] == 1:
                self.ttft.labels(*labels).observe(now - request["arrival"])
            self._last_token[token["id"]] = now
        for transition in message.get("transitions", ()):
            if transition["to"] in ENDED_STATES:
                self._last_token.pop(transition["id"], None)
                reason = "failed" if transition["cause"] == "failed" else transition["cause"]
                self.ended.labels(*labels, reason).inc()
                request = requests.get(transition["id"])
                if request is not None and transition["to"] == "finished":
                    self.e2e.labels(*labels).observe(now - request["arrival"])

    def collect(self) -> Iterator[Any]:
        """Gauges and counters of every followed room, as of now."""
        labels = ["room", "model_name"]
        running = GaugeMetricFamily(f"{PREFIX}num_requests_running", "Requests in the batch.", labels=labels)
        waiting = GaugeMetricFamily(f"{PREFIX}num_requests_waiting", "Requests in the queue.", labels=labels)
        usage = GaugeMetricFamily(f"{PREFIX}kv_cache_usage_perc", "Share of the cache blocks in use, 0 to 1.", labels=labels)
        counters = {name: CounterMetricFamily(PREFIX + name, text, labels=labels) for name, (_, text) in COUNTERS.items()}
        for room, feed in self.hub.feeds.items():
            state = feed.state
            values = [room, str(state["engine"].get("model"))]
            blocks = block_counts(state)
            running.add_metric(values, len(state["active"]))
            waiting.add_metric(values, len(state["queue"]))
            usage.add_metric(values, blocks["owned"] / blocks["total"] if blocks["total"] else 0.0)
            for name, (source, _) in COUNTERS.items():
                names = (source,) if isinstance(source, str) else source
                counters[name].add_metric(values, sum(state["counters"].get(one, 0) for one in names))
        yield from (running, waiting, usage, *counters.values())

    def describe(self) -> list[Any]:
        return []  # the families depend on what is followed

    def text(self) -> bytes:
        self.restarts.set(self.hub.source.status().get("restarts", 0))
        self.viewers.set(len(self.hub.viewers))
        return generate_latest(self.registry)
