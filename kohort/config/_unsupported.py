"""Options of other clients that kohort refuses, each with a reason."""

from __future__ import annotations

import selectors
from typing import Any, Final

from kohort.errors import UnsupportedOptionError


class Unsupported:
    """An option that accepts only values that change nothing. None is always one of them."""

    __slots__ = ("harmless", "name", "properties", "why")

    def __init__(
        self,
        name: str,
        why: str,
        harmless: tuple[Any, ...] = (),
        properties: tuple[str, ...] = (),
    ) -> None:
        self.name: Final = name
        self.why: Final = why
        self.harmless: Final = harmless
        self.properties: Final = properties

    def is_harmless(self, value: Any) -> bool:
        """True if the value changes nothing."""
        return value is None or any(_same(value, each) for each in self.harmless)

    def check(self, value: Any, name: str = "") -> None:
        """Raise UnsupportedOptionError unless the value is harmless. The value may be a secret."""
        if not self.is_harmless(value):
            raise UnsupportedOptionError(f"{name or self.name} is not supported: {self.why}")


def _same(value: Any, harmless: Any) -> bool:
    if isinstance(value, str):
        # A properties file has text for values of every type.
        return value.strip().lower() == str(harmless).lower()
    return type(value) is type(harmless) and bool(value == harmless)


_CLASS = (
    "leave it out; kohort resolves no class names. Credentials come from sasl.jaas.config, "
    "sasl_credentials or sasl_oauth_token_provider"
)
_BROKERS = "leave it out; tokens are validated by brokers"
_LOGIN_TIMING = "leave it out; a new token comes after 80 % of its life, or at login"
_KERBEROS_TIMING = "leave it out; a ticket is renewed at the next login"
_JAVA_TLS = "leave it out; OpenSSL has no such setting"
_OPENSSL = "leave it out, or configure OpenSSL by openssl.cnf and its environment"
_NO_PROXY = "kohort connects without any proxy. Leave it out"
_METRICS = "leave it out; consumer.metrics() gives the figures, to be reported from there"
_OWN_LOOP = "leave it out; kohort has its own network loop. Tests can use kohort.testing"
_LOGGING = 'leave it out and configure the logger "kohort" of Python\'s logging'
_EVENTS = "leave it out; errors are raised, and what happens is logged"
_TUNING = "leave it out; kohort has no such queue or pause to tune"


def _keyword(
    *names: str, why: str, harmless: tuple[Any, ...] = (), properties: tuple[str, ...] = ()
) -> list[Unsupported]:
    return [Unsupported(name, why, harmless, properties) for name in names]


def _dotted(*names: str, why: str, harmless: tuple[Any, ...] = ()) -> list[Unsupported]:
    return [Unsupported(name, why, harmless, properties=(name,)) for name in names]


KEYWORDS: tuple[Unsupported, ...] = (
    *_keyword(
        "proxy_url",
        "socks5_proxy",
        why=f"{_NO_PROXY} and forward the ports instead",
    ),
    *_keyword(
        "client_dns_lookup",
        why="leave it out; all addresses of a host's name are tried in turn",
        harmless=("use_all_dns_ips",),
        properties=("client.dns.lookup",),
    ),
    *_keyword(
        "api_version",
        why="leave it out; kohort asks every broker for its versions",
        harmless=("auto",),
    ),
    *_keyword(
        "metric_reporters", why=_METRICS, harmless=((), [], ""), properties=("metric.reporters",)
    ),
    *_keyword(
        "metrics_num_samples", why=_METRICS, harmless=(2,), properties=("metrics.num.samples",)
    ),
    *_keyword(
        "metrics_sample_window_ms",
        why=_METRICS,
        harmless=(30_000,),
        properties=("metrics.sample.window.ms",),
    ),
    *_keyword("metric_group_prefix", why=_METRICS, harmless=("consumer",)),
    Unsupported("selector", _OWN_LOOP, (selectors.DefaultSelector,)),
    Unsupported("kafka_client", _OWN_LOOP),
    Unsupported("loop", "leave it out; AsyncKafkaConsumer runs in the loop that awaits it"),
)
"""Keywords of kafka-python and aiokafka, and of later versions of kohort."""

PROPERTIES: tuple[Unsupported, ...] = (
    # Java
    *_dotted(
        "default.api.timeout.ms",
        why="leave it out; give timeout_ms to the call, otherwise request.timeout.ms counts",
        harmless=(60_000,),
    ),
    *_dotted(
        "socket.connection.setup.timeout.max.ms",
        why="leave it out; each attempt has socket.connection.setup.timeout.ms",
        harmless=(30_000,),
    ),
    *_dotted("metrics.recording.level", why=_METRICS, harmless=("INFO",)),
    *_dotted("auto.include.jmx.reporter", why=_METRICS, harmless=(True,)),
    *_dotted(
        "enable.metrics.push",
        why='set it to "false"; metrics are not pushed to brokers (KIP-714)',
        harmless=(False,),
    ),
    *_dotted(
        "interceptor.classes",
        "interceptors",
        "plugin.library.paths",
        why="leave it out and apply the same to the records that poll() returns",
        harmless=("",),
    ),
    *_dotted(
        "config.providers",
        why="leave it out and resolve the values first; ${...} in a value is not resolved",
        harmless=("",),
    ),
    *_dotted(
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "ssl.engine.factory.class",
        "security.providers",
        why=_CLASS,
        harmless=("",),
    ),
    *_dotted("ssl.protocol", why=_JAVA_TLS, harmless=("TLSv1.3", "TLSv1.2", "TLS")),
    *_dotted("ssl.provider", "ssl.secure.random.implementation", why=_JAVA_TLS, harmless=("",)),
    *_dotted("ssl.keymanager.algorithm", why=_JAVA_TLS, harmless=("SunX509", "PKIX")),
    *_dotted("ssl.trustmanager.algorithm", why=_JAVA_TLS, harmless=("PKIX", "SunX509")),
    *_dotted("sasl.kerberos.ticket.renew.window.factor", why=_KERBEROS_TIMING, harmless=(0.8,)),
    *_dotted("sasl.kerberos.ticket.renew.jitter", why=_KERBEROS_TIMING, harmless=(0.05,)),
    *_dotted("sasl.kerberos.min.time.before.relogin", why=_KERBEROS_TIMING, harmless=(60_000,)),
    *_dotted(
        "sasl.kerberos.kinit.cmd",
        why="leave it out; no command is run. Give sasl.kerberos.keytab, or run kinit before",
        harmless=("/usr/bin/kinit",),
    ),
    *_dotted("sasl.login.refresh.window.factor", why=_LOGIN_TIMING, harmless=(0.8,)),
    *_dotted("sasl.login.refresh.window.jitter", why=_LOGIN_TIMING, harmless=(0.05,)),
    *_dotted("sasl.login.refresh.min.period.seconds", why=_LOGIN_TIMING, harmless=(60,)),
    *_dotted("sasl.login.refresh.buffer.seconds", why=_LOGIN_TIMING, harmless=(300,)),
    *_dotted(
        "sasl.login.connect.timeout.ms",
        why="leave it out; connecting to a token endpoint takes 5 s at most",
        harmless=(5_000,),
    ),
    *_dotted(
        "sasl.login.read.timeout.ms",
        why="leave it out; a request to a token endpoint takes 10 s at most",
        harmless=(10_000,),
    ),
    *_dotted("sasl.login.retry.backoff.ms", why=_LOGIN_TIMING, harmless=(100,)),
    *_dotted("sasl.login.retry.backoff.max.ms", why=_LOGIN_TIMING, harmless=(10_000,)),
    *_dotted(
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        why=_BROKERS,
        harmless=("",),
    ),
    *_dotted("sasl.oauthbearer.jwks.endpoint.refresh.ms", why=_BROKERS, harmless=(3_600_000,)),
    *_dotted("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", why=_BROKERS, harmless=(100,)),
    *_dotted(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", why=_BROKERS, harmless=(10_000,)
    ),
    *_dotted(
        "sasl.oauthbearer.jwt.validator.class",
        why=_BROKERS,
        harmless=(
            "",
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
            "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator",
        ),
    ),
    *_dotted("sasl.oauthbearer.clock.skew.seconds", why=_BROKERS, harmless=(30,)),
    *_dotted("sasl.oauthbearer.scope.claim.name", why=_BROKERS, harmless=("scope",)),
    # librdkafka
    *_dotted(
        "enable.ssl.certificate.verification",
        why="kohort always verifies the certificates of brokers. Set ssl_cafile (ssl.ca.location) "
        "to their CA",
        harmless=(True,),
    ),
    *_dotted(
        "ssl.certificate.verify_cb",
        why="kohort always verifies the certificates of brokers. Give an ssl_context instead",
    ),
    *_dotted("ssl_ca", "ssl_certificate", "ssl_key", why="give an ssl_context instead"),
    *_dotted(
        "ssl.ca.certificate.stores",
        why="leave it out; without ssl.ca.location the CAs of the system are used",
        harmless=("Root",),
    ),
    *_dotted("ssl.curves.list", "ssl.sigalgs.list", "ssl.providers", why=_OPENSSL),
    *_dotted("ssl.engine.location", "ssl_engine_callback_data", why=_OPENSSL),
    *_dotted("ssl.engine.id", why=_OPENSSL, harmless=("dynamic",)),
    *_dotted(
        "sasl.oauthbearer.metadata.authentication.type",
        why="give a sasl_oauth_token_provider that calls the library of the cloud",
        harmless=("none",),
    ),
    *_dotted("oauthbearer_token_refresh_cb", why="give a sasl_oauth_token_provider, or oauth_cb"),
    *_dotted(
        "enable.auto.offset.store",
        why="leave it out; use enable.auto.commit=false and commit(offsets)",
        harmless=(True,),
    ),
    *_dotted("offset.store.method", why="offsets are kept by the brokers", harmless=("broker",)),
    *_dotted(
        "enable.partition.eof",
        why="leave it out; compare position(partition) with highwater(partition)",
        harmless=(False,),
    ),
    *_dotted(
        "on_commit", "offset_commit_cb", why="leave it out and give a callback to commit_async()"
    ),
    *_dotted("rebalance_cb", "consume_cb", why="give a listener to subscribe(), and call poll()"),
    *_dotted("error_cb", "throttle_cb", "stats_cb", "background_event_cb", "opaque", why=_EVENTS),
    *_dotted("statistics.interval.ms", why=_METRICS, harmless=(0,)),
    *_dotted("enabled_events", why=_EVENTS, harmless=(0,)),
    *_dotted("log_cb", "logger", "debug", why=_LOGGING, harmless=("",)),
    *_dotted("log_level", why=_LOGGING, harmless=(6,)),
    *_dotted("log.queue", why=_LOGGING, harmless=(False,)),
    *_dotted("log.thread.name", why=_LOGGING, harmless=(True, False)),
    *_dotted("log.connection.close", why=_LOGGING, harmless=(True,)),
    *_dotted("socket_cb", "connect_cb", "closesocket_cb", "open_cb", "resolve_cb", why=_OWN_LOOP),
    *_dotted(
        "default.topic.config",
        "default_topic_conf",
        why="give its entries as options of the consumer",
    ),
    *_dotted("topic.blacklist", why="leave it out and subscribe to a pattern that excludes them"),
    *_dotted("broker.address.family", why="all addresses are tried", harmless=("any",)),
    *_dotted(
        "broker.address.ttl", why="addresses are resolved at each connection", harmless=(1_000,)
    ),
    *_dotted("socket.keepalive.enable", why="SO_KEEPALIVE is always set", harmless=(True, False)),
    *_dotted("socket.nagle.disable", why="TCP_NODELAY is always set", harmless=(True, False)),
    *_dotted("socket.max.fails", why=_TUNING, harmless=(1,)),
    *_dotted("socket.blocking.max.ms", why=_TUNING, harmless=(1_000,)),
    *_dotted("reconnect.backoff.jitter.ms", why=_TUNING, harmless=(0,)),
    *_dotted("message.max.bytes", why="it is an option of producers", harmless=(1_000_000,)),
    *_dotted("message.copy.max.bytes", why="it is an option of producers", harmless=(65_535,)),
    *_dotted("queued.min.messages", why=_TUNING, harmless=(100_000,)),
    *_dotted("queued.max.messages.kbytes", why=_TUNING, harmless=(65_536,)),
    *_dotted("fetch.queue.backoff.ms", why=_TUNING, harmless=(1_000,)),
    *_dotted("fetch.error.backoff.ms", why="use retry.backoff.ms", harmless=(500,)),
    *_dotted("coordinator.query.interval.ms", why=_TUNING, harmless=(600_000,)),
    *_dotted("topic.metadata.refresh.fast.interval.ms", why=_TUNING, harmless=(100,)),
    *_dotted("topic.metadata.refresh.fast.cnt", why=_TUNING, harmless=(10,)),
    *_dotted("topic.metadata.refresh.sparse", why=_TUNING, harmless=(True,)),
    *_dotted("topic.metadata.propagation.max.ms", why=_TUNING, harmless=(30_000,)),
    *_dotted("consume.callback.max.messages", why=_TUNING, harmless=(0,)),
    *_dotted("group.protocol.type", why="it is always consumer", harmless=("consumer",)),
    *_dotted(
        "api.version.request", why="kohort always asks brokers for their versions", harmless=(True,)
    ),
    *_dotted("api.version.request.timeout.ms", why=_TUNING, harmless=(10_000,)),
    *_dotted("api.version.fallback.ms", why=_TUNING, harmless=(0, 1_200_000)),
    *_dotted(
        "broker.version.fallback",
        why="kohort always asks brokers for their versions",
        harmless=("0.10.0",),
    ),
    *_dotted("enable.random.seed", why=_TUNING, harmless=(True,)),
    *_dotted("internal.termination.signal", why=_TUNING, harmless=(0,)),
    *_dotted("test.mock.num.brokers", why="use kohort.testing.Cluster", harmless=(0,)),
)
"""Dotted names of Java and librdkafka that have no keyword here."""
