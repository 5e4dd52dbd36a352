"""Options of other clients that kohort ignores or refuses, each with a reason.

An option is ignored if no value of it changes which records a program gets, or which errors. All
other options here are refused, except with a value that says what kohort does anyway.
"""

from __future__ import annotations

import selectors
from typing import Any, Final

from kohort.errors import UnsupportedOptionError
from kohort.logs import get_logger

logger = get_logger("kohort.config")


class Unsupported:
    """An option that accepts only values that change nothing. None is always one of them.

    If it is ignored, every value changes nothing, and a DEBUG line says why.
    """

    __slots__ = ("harmless", "is_ignored", "name", "properties", "why")

    def __init__(
        self,
        name: str,
        why: str,
        harmless: tuple[Any, ...] = (),
        properties: tuple[str, ...] = (),
        *,
        is_ignored: bool = False,
    ) -> None:
        self.name: Final = name
        self.why: Final = why
        self.harmless: Final = harmless
        self.properties: Final = properties
        self.is_ignored: Final = is_ignored

    def is_harmless(self, value: Any) -> bool:
        """True if the value changes nothing."""
        return self.is_ignored or value is None or any(_same(value, each) for each in self.harmless)

    def check(self, value: Any, name: str = "", *, only_warn: bool = False) -> None:
        """Raise UnsupportedOptionError, or log it, unless the value is harmless.

        The value may be a secret, so no text has it.
        """
        if self.is_ignored:
            if value is not None:
                logger.debug("%s has no effect: %s", name or self.name, self.why)
        elif not self.is_harmless(value):
            text = f"{name or self.name} is not supported: {self.why}"
            if not only_warn:
                raise UnsupportedOptionError(text)
            logger.warning("%s. The option is ignored", text)


def _same(value: Any, harmless: Any) -> bool:
    if isinstance(value, str):
        # A properties file has text for values of every type.
        return value.strip().lower() == str(harmless).lower()
    return type(value) is type(harmless) and bool(value == harmless)


_CLASS = (
    "leave it out; kohort resolves no class names. Credentials come from sasl.jaas.config, "
    "sasl_credentials or sasl_oauth_token_provider"
)
_BROKERS = "tokens are validated by brokers"
_LOGIN_TIMING = "a new token comes after 80 % of its life, or at login"
_KERBEROS_TIMING = "a ticket is renewed at the next login"
_JAVA_TLS = "OpenSSL has no such setting"
_OPENSSL = "leave it out, or configure OpenSSL by openssl.cnf and its environment"
_METRICS = "leave it out; consumer.metrics() gives the figures, to be reported from there"
_FIGURES = "the figures come from consumer.metrics()"
_OWN_LOOP = "leave it out; kohort has its own network loop. Tests can use kohort.testing"
_LOGGING = 'kohort logs to the logger "kohort" of Python\'s logging, so configure that'
_EVENTS = "leave it out; errors are raised, and what happens is logged"
_TUNING = "kohort has no such queue or pause to tune"
_PRODUCER = "it is an option of producers"
_VERSIONS = "kohort asks every broker for its versions"


def _keyword(
    *names: str, why: str, harmless: tuple[Any, ...] = (), properties: tuple[str, ...] = ()
) -> list[Unsupported]:
    return [Unsupported(name, why, harmless, properties) for name in names]


def _dotted(*names: str, why: str, harmless: tuple[Any, ...] = ()) -> list[Unsupported]:
    return [Unsupported(name, why, harmless, properties=(name,)) for name in names]


def _ignored(*names: str, why: str) -> list[Unsupported]:
    return [Unsupported(name, why, properties=(name,), is_ignored=True) for name in names]


def _ignored_keyword(name: str, why: str, *properties: str) -> Unsupported:
    return Unsupported(name, why, properties=properties, is_ignored=True)


KEYWORDS: tuple[Unsupported, ...] = (
    *_keyword(
        "client_dns_lookup",
        why="leave it out; all addresses of a host's name are tried in turn",
        harmless=("use_all_dns_ips",),
        properties=("client.dns.lookup",),
    ),
    _ignored_keyword("api_version", _VERSIONS),
    *_keyword(
        "metric_reporters",
        why=_METRICS,
        harmless=((), [], "", "org.apache.kafka.common.metrics.JmxReporter"),
        properties=("metric.reporters",),
    ),
    _ignored_keyword("metrics_num_samples", _FIGURES, "metrics.num.samples"),
    _ignored_keyword("metrics_sample_window_ms", _FIGURES, "metrics.sample.window.ms"),
    _ignored_keyword("metric_group_prefix", _FIGURES),
    Unsupported("selector", _OWN_LOOP, (selectors.DefaultSelector,)),
    Unsupported("kafka_client", _OWN_LOOP),
    Unsupported("loop", "leave it out; AsyncKafkaConsumer runs in the loop that awaits it"),
)
"""Keywords of kafka-python and aiokafka, and of later versions of kohort."""

REFUSED: tuple[Unsupported, ...] = (
    # Java
    *_dotted(
        "default.api.timeout.ms",
        why="leave it out; give timeout_ms to the call, otherwise request.timeout.ms counts",
        harmless=(60_000,),
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
    *_dotted(
        "ssl.protocol",
        why=f"leave it out; {_JAVA_TLS}",
        harmless=("TLSv1.3", "TLSv1.2", "TLS"),
    ),
    *_dotted(
        "ssl.provider",
        "ssl.secure.random.implementation",
        why=f"leave it out; {_JAVA_TLS}",
        harmless=("",),
    ),
    *_dotted(
        "ssl.keymanager.algorithm",
        "ssl.trustmanager.algorithm",
        why=f"leave it out; {_JAVA_TLS}",
        harmless=("SunX509", "PKIX"),
    ),
    *_dotted(
        "sasl.kerberos.kinit.cmd",
        why="leave it out; no command is run. Give sasl.kerberos.keytab, or run kinit before",
        harmless=(
            "/usr/bin/kinit",
            'kinit -R -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal} '
            '|| kinit -t "%{sasl.kerberos.keytab}" -k %{sasl.kerberos.principal}',
        ),
    ),
    *_dotted(
        "sasl.oauthbearer.jwt.validator.class",
        why=f"leave it out; {_BROKERS}",
        harmless=(
            "",
            "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
            "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator",
        ),
    ),
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
    *_dotted("error_cb", "throttle_cb", "background_event_cb", why=_EVENTS),
    *_dotted("stats_cb", why=_METRICS),
    *_dotted("socket_cb", "connect_cb", "closesocket_cb", "open_cb", "resolve_cb", why=_OWN_LOOP),
    *_dotted(
        "default.topic.config",
        "default_topic_conf",
        why="give its entries as options of the consumer",
    ),
    *_dotted("topic.blacklist", why="leave it out and subscribe to a pattern that excludes them"),
    *_dotted("group.protocol.type", why="it is always consumer", harmless=("consumer",)),
    *_dotted("test.mock.num.brokers", why="use kohort.testing.Cluster", harmless=(0,)),
)
"""Dotted names of Java and librdkafka that have no keyword here, and whose values matter."""

IGNORED: tuple[Unsupported, ...] = (
    # Java
    *_ignored("bootstrap.resolve.timeout.ms", why="names are resolved at each connection"),
    *_ignored(
        "socket.connection.setup.timeout.max.ms",
        why="each attempt has socket.connection.setup.timeout.ms",
    ),
    *_ignored("metrics.recording.level", "auto.include.jmx.reporter", why=_FIGURES),
    *_ignored("enable.metrics.push", why="metrics are not pushed to brokers (KIP-714)"),
    *_ignored(
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.min.time.before.relogin",
        why=_KERBEROS_TIMING,
    ),
    *_ignored(
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
        why=_LOGIN_TIMING,
    ),
    *_ignored(
        "sasl.login.connect.timeout.ms",
        why="connecting to a token endpoint takes 5 s at most",
    ),
    *_ignored(
        "sasl.login.read.timeout.ms",
        why="a request to a token endpoint takes 10 s at most",
    ),
    *_ignored(
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        why=_BROKERS,
    ),
    # librdkafka
    *_ignored(
        "debug", "enabled_events", "log_cb", "log_level", "log.connection.close", why=_LOGGING
    ),
    *_ignored("log.queue", "log.thread.name", "logger", why=_LOGGING),
    *_ignored("opaque", why="only callbacks of librdkafka get it"),
    *_ignored("statistics.interval.ms", why=_FIGURES),
    *_ignored("broker.address.family", why="all addresses of a host's name are tried"),
    *_ignored("broker.address.ttl", why="names are resolved at each connection"),
    *_ignored("socket.keepalive.enable", why="SO_KEEPALIVE is always set"),
    *_ignored("socket.nagle.disable", why="TCP_NODELAY is always set"),
    *_ignored(
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "broker.version.fallback",
        why=_VERSIONS,
    ),
    *_ignored(
        "builtin.features",
        "client.software.name",
        "client.software.version",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.random.seed",
        "enable.sparse.connections",
        "enable_sasl_queue",
        "fetch.queue.backoff.ms",
        "internal.termination.signal",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "metadata.request.timeout.ms",
        "queued.min.messages",
        "reconnect.backoff.jitter.ms",
        "socket.blocking.max.ms",
        "socket.max.fails",
        "test.mock.broker.rtt",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.cnt",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.sparse",
        why=_TUNING,
    ),
    *_ignored("fetch.error.backoff.ms", why="retry.backoff.ms is the pause after errors"),
    *_ignored(
        "share.acknowledgement.mode", "share.acquire.mode", why="it is for share consumers only"
    ),
    # Producers: many programs have one dictionary for both.
    *_ignored(
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "dr_msg_cb",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "key.serializer",
        "linger.ms",
        "max.block.ms",
        "max.request.size",
        "message.copy.max.bytes",
        "message.max.bytes",
        "message.send.max.retries",
        "message.timeout.ms",
        "msg_order_cmp",
        "on_delivery",
        "partitioner",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "partitioner_cb",
        "produce.offset.report",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queuing.strategy",
        "request.required.acks",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
        "transaction.two.phase.commit.enable",
        "value.serializer",
        why=_PRODUCER,
    ),
)
"""Dotted names of Java and librdkafka that change nothing for a reader, whatever their value."""

PROPERTIES: tuple[Unsupported, ...] = (*REFUSED, *IGNORED)
