"""Every series of `/metrics`: its name, kind, labels and meaning. docs/monitoring.md lists them."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """`help` is one line."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


_REQUEST: Final = (
    *("endpoint", "client_format", "upstream_format", "model", "group"),
    *("status", "code", "outcome"),
)
_MODEL_GROUP: Final = ("model", "group")

FAMILIES: Final = (
    Family(
        "gateway_requests_total",
        "counter",
        _REQUEST,
        "Requests that have ended, those without a valid key included.",
    ),
    Family(
        "gateway_request_duration_seconds",
        "histogram",
        ("endpoint", "model", "stream"),
        "From the head of a request to the last byte of its reply; requests with an attempt.",
    ),
    Family(
        "gateway_time_to_first_token_seconds",
        "histogram",
        ("endpoint", "model"),
        "From the head of a request to the first event of its streamed reply.",
    ),
    Family(
        "gateway_time_between_events_seconds",
        "histogram",
        ("model",),
        "Between two reads of an upstream's stream, after its first event.",
    ),
    Family(
        "gateway_overhead_seconds",
        "histogram",
        ("endpoint",),
        "The gateway's own part of the duration: without queue, upload and upstream.",
    ),
    Family(
        "gateway_queue_wait_seconds",
        "histogram",
        ("group",),
        "Time in the admission queue, of requests that had to wait.",
    ),
    Family("gateway_request_bytes_total", "counter", ("endpoint",), "Bytes of request bodies."),
    Family("gateway_response_bytes_total", "counter", ("endpoint",), "Bytes of replies."),
    Family(
        "gateway_tokens_total",
        "counter",
        ("model", "group", "class"),
        "Tokens, each in one class: input (uncached), cache_read, cache_write, output, reasoning.",
    ),
    Family("gateway_units_total", "counter", _MODEL_GROUP, "Billed units."),
    Family("gateway_cost_usd_total", "counter", _MODEL_GROUP, "Billed US dollars."),
    Family("gateway_web_searches_total", "counter", _MODEL_GROUP, "Web searches of replies."),
    Family(
        "gateway_attempts_total",
        "counter",
        ("channel", "account", "verdict"),
        "Attempts at upstreams, by what the failure policy said of each.",
    ),
    Family(
        "gateway_lost_proofs_total",
        "counter",
        ("reason",),
        "Requests without earlier reasoning, which could not return to its upstream.",
    ),
    Family(
        "gateway_upstream_time_to_first_token_seconds",
        "histogram",
        ("channel", "model"),
        "From the start of an attempt to the first event of its streamed reply.",
    ),
    Family(
        "gateway_key_requests_total",
        "counter",
        ("key", "outcome"),
        "Requests by the id of their key, with metrics.keys.",
    ),
    Family(
        "gateway_key_tokens_total",
        "counter",
        ("key", "class"),
        "Input and output tokens by the id of their key, with metrics.keys.",
    ),
    Family(
        "gateway_key_units_total",
        "counter",
        ("key",),
        "Billed units by the id of their key, with metrics.keys.",
    ),
    Family(
        "gateway_key_cost_usd_total",
        "counter",
        ("key",),
        "Billed US dollars by the id of their key, with metrics.keys.",
    ),
    Family(
        "gateway_key_info",
        "gauge",
        ("key", "name", "group"),
        "1 for each active key, with metrics.keys.",
    ),
    Family(
        "gateway_account_state",
        "gauge",
        ("channel", "account", "state"),
        "1 for the state of an account, the worst of its models; 0 for other states.",
    ),
    Family(
        "gateway_account_requests",
        "gauge",
        ("channel", "account"),
        "Requests of an account that are running.",
    ),
    Family(
        "gateway_credential_refreshes_total",
        "counter",
        ("channel", "account", "outcome"),
        "Renewals of credentials that expire: ok or failed.",
    ),
    Family(
        "gateway_credential_expiry_timestamp_seconds",
        "gauge",
        ("channel", "account"),
        "When the credential of an account ends.",
    ),
    Family(
        "gateway_channel_accounts",
        "gauge",
        ("channel",),
        "Accounts of a channel.",
    ),
    Family(
        "gateway_channel_accounts_usable",
        "gauge",
        ("channel",),
        "Those that can serve a model: neither disabled nor rejected, nor failing for all models.",
    ),
    Family(
        "gateway_limit_used_ratio",
        "gauge",
        ("holder", "name", "limit"),
        "Used part of each limit and budget: of the gateway, groups and, with metrics.keys, keys.",
    ),
    Family("gateway_requests_running", "gauge", (), "Requests that are running."),
    Family("gateway_streams_open", "gauge", (), "Streamed replies that are being relayed."),
    Family(
        "gateway_background_drains",
        "gauge",
        (),
        "Replies that are read to their end after their clients have disconnected.",
    ),
    Family("gateway_queue_length", "gauge", (), "Requests in the admission queue."),
    Family(
        "gateway_shared_lost_seconds_total",
        "counter",
        (),
        "For how long the server of shared limits could not be asked.",
    ),
    Family(
        "gateway_shared_answer_seconds",
        "histogram",
        (),
        "How long its answers took; their number is that of the commands sent to it.",
    ),
    Family("gateway_client_connections", "gauge", (), "Open connections of clients."),
    Family(
        "gateway_client_connections_refused_total",
        "counter",
        (),
        "Connections of clients that were one too many, or left for a newer one.",
    ),
    Family(
        "gateway_malformed_requests_total",
        "counter",
        (),
        "Requests that were no valid HTTP, or whose heads were too large or too late.",
    ),
    Family(
        "gateway_upstream_connections",
        "gauge",
        ("state",),
        "Open connections to upstreams, busy or idle.",
    ),
    Family(
        "gateway_upstream_connections_distrusted_total",
        "counter",
        ("cause",),
        "Connections that broke at a later request, or brought what none had asked for.",
    ),
    Family("gateway_bodies_bytes", "gauge", (), "Memory of the bodies of running requests."),
    Family("gateway_bodies_limit_bytes", "gauge", (), "The maximum of it."),
    Family(
        "gateway_recent_bodies_bytes",
        "gauge",
        (),
        "Estimated memory of the newest bodies and what is known of them, at most 32 MiB.",
    ),
    Family(
        "gateway_log_unwritten_rows", "gauge", (), "Rows of the request log that are not written."
    ),
    Family(
        "gateway_log_unwritten_seconds",
        "gauge",
        (),
        "For how long none of them could be written; 0 where none waits.",
    ),
    Family(
        "gateway_log_journal",
        "gauge",
        (),
        "1 while the request journal has requests before SQLite; 0: they wait for commits.",
    ),
    Family(
        "gateway_log_spooled_entries",
        "gauge",
        (),
        "Entries of the request log that wait on disk for the database server.",
    ),
    Family("gateway_log_spooled_bytes", "gauge", (), "Bytes of the file in which they wait."),
    Family(
        "gateway_log_spooled_seconds",
        "gauge",
        (),
        "For how long the oldest of them has waited; 0 where none waits.",
    ),
    Family(
        "gateway_event_loop_lag_seconds",
        "histogram",
        (),
        "How late a timer of the event loop was, measured 10 times per second.",
    ),
    Family(
        "gateway_replicas",
        "gauge",
        ("state",),
        "Replicas on the same database server: living, lost (not heard of for 5 s), or absent:"
        " living, but without limits in common with this one.",
    ),
    Family("gateway_replica_is_leader", "gauge", (), "1 on the replica that deletes old rows."),
    Family("gateway_database_up", "gauge", (), "1 while the database server answers."),
    Family(
        "gateway_database_contact_age_seconds",
        "gauge",
        (),
        "Since the database server has confirmed what is known of keys.",
    ),
    Family(
        "gateway_shared_up",
        "gauge",
        (),
        "1 while the shared (Valkey) server answers and shares limits.",
    ),
    Family(
        "gateway_key_changes_confirmed",
        "gauge",
        (),
        "1 while changes of keys are known; else no request is served.",
    ),
    Family(
        "gateway_key_changes_apply_seconds",
        "gauge",
        (),
        "How long it took to apply the last change of keys.",
    ),
    Family(
        "gateway_clock_offset_seconds",
        "gauge",
        (),
        "How far the machine's clock is ahead of the database server's, which replicas use.",
    ),
    Family("gateway_draining", "gauge", (), "1 while the gateway stops."),
    Family(
        "gateway_config_last_reload_successful",
        "gauge",
        (),
        "1 where the file was valid when it was last loaded, else 0.",
    ),
    Family(
        "gateway_config_last_reload_success_timestamp_seconds",
        "gauge",
        (),
        "When the configuration was last loaded.",
    ),
    Family("gateway_config_info", "gauge", ("hash",), "1, with the hash of the configuration."),
    Family(
        "gateway_build_info",
        "gauge",
        ("version", "commit", "python"),
        "1, with the version of the gateway, its commit if it is known, and that of Python.",
    ),
    Family(
        "gateway_metrics_folded_total",
        "counter",
        ("table",),
        "Observations that were counted in a row named other, as their table was full.",
    ),
)
