"""Checks for combinations of security options that cannot work."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from kohort.config.options._option import options_of
from kohort.config.options._url import is_loopback
from kohort.config.security._oauth import AZURE, AZURE_ENDPOINT, JWT_BEARER, METADATA_HOSTS
from kohort.config.security._sasl import MECHANISMS, SCRAM
from kohort.errors import InvalidOptionError
from kohort.logs import get_logger

if TYPE_CHECKING:
    from kohort.config.security._oauth import AssertionConfig, OAuthConfig, UnsecuredConfig
    from kohort.config.security._sasl import SaslConfig
    from kohort.config.security._tls import StoreConfig, TlsConfig

logger = get_logger("kohort.config")

_warned: set[str] = set()
"""Hosts for which a warning about clear text was logged."""
_HARMLESS_WITHOUT_TLS = {"ssl_check_hostname", "ssl_min_version", "ssl_reload"}
_PASSWORD = ("sasl_plain_username", "sasl_plain_password", "sasl_credentials")
_KERBEROS = (
    "sasl_kerberos_domain_name",
    "sasl_kerberos_name",
    "sasl_kerberos_principal",
    "sasl_kerberos_keytab",
    "sasl_kerberos_ccache",
)
_OAUTH_PREFIX = "sasl_oauthbearer_"
_METADATA = "sasl_oauthbearer_metadata_authentication_type"
_OF_METADATA = {
    _METADATA,
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_extensions",
    "sasl_oauthbearer_sub_claim_name",
    "sasl_oauthbearer_allow_http",
    "sasl_oauthbearer_allowed_urls",
    "sasl_oauthbearer_https_cafile",
    "sasl_oauthbearer_https_cadata",
}
"""Options that a login as the identity of the machine uses."""
_JAVA_DEFAULTS = {"PLAIN", "GSSAPI"}
"""Default mechanisms of other clients, which they also have without SASL."""
_KEYTOOL: Final = (
    "keytool -importkeystore -srckeystore FILE -destkeystore store.p12 -deststoretype PKCS12"
)
_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


class SecuritySections(Protocol):
    """The security options of a client, in their sections."""

    @property
    def security_protocol(self) -> str: ...
    @property
    def tls(self) -> TlsConfig: ...
    @property
    def stores(self) -> StoreConfig: ...
    @property
    def sasl(self) -> SaslConfig: ...
    @property
    def oauth(self) -> OAuthConfig: ...
    @property
    def assertion(self) -> AssertionConfig: ...
    @property
    def unsecured(self) -> UnsecuredConfig: ...
    @property
    def uses_tls(self) -> bool: ...
    @property
    def uses_sasl(self) -> bool: ...
    def given(self) -> list[str]: ...


def check(config: SecuritySections) -> dict[str, Any]:
    """Return the sections to replace. Raise InvalidOptionError for options that contradict.

    Stores of the type PEM are replaced by the options that name PEM files.
    """
    given = frozenset(config.given())
    _refuse_both(given, "proxy_url", "socks5_proxy")
    _check_protocol(config, given)
    changes = _resolve_stores(config.tls, config.stores) if config.uses_tls else {}
    if config.uses_tls:
        _check_tls(changes.get("tls", config.tls), given)
    if config.uses_sasl:
        _check_mechanism(config, given)
    return changes


def warn_of_clear_text(config: SecuritySections, servers: tuple[tuple[str, int], ...]) -> None:
    """Log a warning once a host if a login sends a password or token without encryption."""
    if config.sasl.sasl_mechanism not in ("PLAIN", "OAUTHBEARER", "AWS_MSK_IAM"):
        return
    for host, _ in servers:
        if not is_loopback(host) and host not in _warned:
            _warned.add(host)
            logger.warning(
                "security_protocol=SASL_PLAINTEXT sends the password or token of %s to %s without "
                "encryption: use SASL_SSL",
                config.sasl.sasl_mechanism,
                host,
            )


def _refuse(sentence: str) -> NoReturn:
    raise InvalidOptionError(sentence)


def _refuse_both(given: Iterable[str], *names: str) -> None:
    """Refuse more than one of these options."""
    both = [name for name in names if name in given]
    if len(both) > 1:
        _refuse(f"{both[0]} is given together with {both[1]}: give one of them")


# -- the protocol ---------------------------------------------------------------------------


def _check_protocol(config: SecuritySections, given: frozenset[str]) -> None:
    """Refuse options of TLS or of logins that the protocol does not use."""
    tls = {each.name for part in (config.tls, config.stores) for each in options_of(type(part))}
    for name in config.given():
        if name in ("security_protocol", "proxy_url", "socks5_proxy"):
            continue
        if name in tls:
            useful = config.uses_tls or name in _HARMLESS_WITHOUT_TLS
            better = "SASL_SSL" if config.uses_sasl else "SSL"
        else:
            useful = config.uses_sasl or _is_default_login(config, name)
            better = "SASL_SSL"
        if not useful:
            _refuse(f"{name} is given, but security_protocol is {config.security_protocol}: "
                    f"use {better}")  # fmt: skip


def _is_default_login(config: SecuritySections, name: str) -> bool:
    """Return True if the value is a default of other clients."""
    if name == "sasl_mechanism":
        return config.sasl.sasl_mechanism in _JAVA_DEFAULTS
    return name == "sasl_kerberos_service_name"


# -- TLS ------------------------------------------------------------------------------------


def _resolve_stores(tls: TlsConfig, stores: StoreConfig) -> dict[str, Any]:
    """Return the sections without stores of the type PEM. Refuse stores that cannot be read."""
    if stores.ssl_keystore_password is not None and stores.ssl_keystore_location is None:
        _refuse("ssl_keystore_password is given without ssl_keystore_location")
    if stores.ssl_truststore_password is not None and stores.ssl_truststore_location is None:
        _refuse("ssl_truststore_password is given without ssl_truststore_location")
    of_tls: dict[str, Any] = {}
    of_stores: dict[str, Any] = {}
    if stores.ssl_keystore_location is not None:
        for name in ("ssl_certfile", "ssl_keyfile", "ssl_certdata", "ssl_keydata"):
            if getattr(tls, name) is not None:
                _refuse(f"ssl_keystore_location is given together with {name}: give one of them")
        kind = _store_kind("ssl_keystore", stores.ssl_keystore_location, stores.ssl_keystore_type)
        if kind == "PEM":
            if stores.ssl_keystore_password is not None:
                _refuse(
                    "ssl_keystore_password is given, but ssl_keystore_location is a PEM file: the "
                    "password of its key is ssl_password"
                )
            of_tls["ssl_certfile"] = stores.ssl_keystore_location
            of_stores |= {"ssl_keystore_location": None, "ssl_keystore_type": None}
        elif stores.ssl_keystore_password is None:
            _refuse("ssl_keystore_location requires ssl_keystore_password")
    if stores.ssl_truststore_location is not None:
        for name in ("ssl_cafile", "ssl_cadata"):
            if getattr(tls, name) is not None:
                _refuse(f"ssl_truststore_location is given together with {name}: give one of them")
        kind = _store_kind(
            "ssl_truststore", stores.ssl_truststore_location, stores.ssl_truststore_type
        )
        if kind == "PEM":
            if stores.ssl_truststore_password is not None:
                _refuse(
                    "ssl_truststore_password is given, but ssl_truststore_location is a PEM file, "
                    "which has none"
                )
            of_tls["ssl_cafile"] = stores.ssl_truststore_location
            of_stores |= {"ssl_truststore_location": None, "ssl_truststore_type": None}
    # Java gives PEM text in the stores' options, with the type PEM and no location.
    for store in ("ssl_keystore", "ssl_truststore"):
        if getattr(stores, f"{store}_location") is None and getattr(stores, f"{store}_type"):
            of_stores[f"{store}_type"] = None
    changes: dict[str, Any] = {}
    if of_tls:
        changes["tls"] = dataclasses.replace(tls, **of_tls)
    if of_stores:
        changes["stores"] = dataclasses.replace(stores, **of_stores)
    return changes


def _store_kind(store: str, location: str, given: str | None) -> str:
    """Return "PEM" or "PKCS12", by the first bytes of the file if it can be read.

    Java reads a PKCS#12 file even if the given type is JKS.
    """
    try:
        with open(location, "rb") as file:
            head = file.read(4_096)
    except OSError:
        head = b""  # loading it later raises the error
    if head.startswith(_JKS_MAGIC) or (given == "JKS" and not head):
        _refuse(f"{store}_location is a Java key store (JKS). Convert it: {_KEYTOOL}")
    if given in (None, "JKS"):
        return "PEM" if b"-----BEGIN" in head else "PKCS12"
    return given


def _check_tls(tls: TlsConfig, given: frozenset[str]) -> None:
    if tls.ssl_context is not None:
        others = [name for name in given if name.startswith("ssl_") and name != "ssl_context"]
        if others:
            _refuse(
                f"ssl_context is given together with {min(others)}: a context is used as it is. "
                "Set it in the context, or leave the context out"
            )
        return
    _refuse_both(given, "ssl_cafile", "ssl_cadata")
    _refuse_both(given, "ssl_certfile", "ssl_certdata")
    _refuse_both(given, "ssl_keyfile", "ssl_keydata")
    if tls.ssl_certdata is not None and tls.ssl_keydata is None:
        _refuse("ssl_certdata is a certificate without its private key: give ssl_keydata")
    if tls.ssl_keydata is not None and tls.ssl_certdata is None:
        _refuse("ssl_keydata is a private key without its certificate: give ssl_certdata")
    if tls.ssl_keyfile is not None and tls.ssl_certfile is None:
        _refuse("ssl_keyfile is a private key without its certificate: give ssl_certfile")
    has_key = tls.ssl_certfile or tls.ssl_keydata or "ssl_keystore_location" in given
    if tls.ssl_password is not None and not has_key:
        _refuse(
            "ssl_password is the password of a private key, and none is given: give ssl_certfile "
            "and ssl_keyfile"
        )


# -- logins ---------------------------------------------------------------------------------


def _check_mechanism(config: SecuritySections, given: frozenset[str]) -> None:
    mechanism = config.sasl.sasl_mechanism
    if mechanism is None:
        _refuse(
            f"security_protocol={config.security_protocol} requires sasl_mechanism: one of "
            f"{', '.join(MECHANISMS)}"
        )
    uses = {
        "PLAIN": _PASSWORD,
        "OAUTHBEARER": ("sasl_oauth_token_provider",),
        "GSSAPI": _KERBEROS,
        "AWS_MSK_IAM": (),
        **dict.fromkeys(SCRAM, (*_PASSWORD, "sasl_delegation_token")),
    }
    for name in config.given():
        if not name.startswith("sasl_") or name in uses[mechanism]:
            continue
        if name.startswith(_OAUTH_PREFIX) and mechanism == "OAUTHBEARER":
            continue
        if name not in ("sasl_mechanism", "sasl_kerberos_service_name"):
            _refuse(f"{name} is given, but sasl_mechanism is {mechanism}, which does not use it")
    if mechanism == "PLAIN" or mechanism in SCRAM:
        _check_password(config, given, mechanism)
    elif mechanism == "OAUTHBEARER":
        _check_token_source(config, given)


def _check_password(config: SecuritySections, given: frozenset[str], mechanism: str) -> None:
    sasl = config.sasl
    if sasl.sasl_credentials is not None:
        _refuse_both(given, "sasl_credentials", "sasl_plain_username")
        _refuse_both(given, "sasl_credentials", "sasl_plain_password")
    else:
        for name in ("sasl_plain_username", "sasl_plain_password"):
            if name not in given:
                _refuse(
                    f"sasl_mechanism={mechanism} requires {name}, or sasl_credentials for both the "
                    "user and the password"
                )
    password = sasl.sasl_plain_password
    if mechanism == "PLAIN" and password is not None and "\0" in password.reveal():
        _refuse("sasl_plain_password has a NUL character, which sasl_mechanism=PLAIN cannot send")


def _check_token_source(config: SecuritySections, given: frozenset[str]) -> None:
    sources = (
        "sasl_oauth_token_provider",
        "sasl_oauthbearer_token_file",
        "sasl_oauthbearer_token_endpoint_url",
        "sasl_oauthbearer_unsecured",
    )
    if config.unsecured.sasl_oauthbearer_unsecured_claims:
        if not config.unsecured.sasl_oauthbearer_unsecured:
            _refuse(
                "sasl_oauthbearer_unsecured_claims makes tokens without a signature: set "
                "sasl_oauthbearer_unsecured too, or use another source of tokens"
            )
    _refuse_both(given, *sources)
    lifetime = "sasl_oauthbearer_unsecured_lifetime_seconds"
    if lifetime in given and not config.unsecured.sasl_oauthbearer_unsecured:
        _refuse(f"{lifetime} requires sasl_oauthbearer_unsecured")
    metadata = config.oauth.sasl_oauthbearer_metadata_authentication_type
    if metadata == "none" and not any(name in given for name in sources):
        _refuse(
            f"sasl_mechanism=OAUTHBEARER requires a source of tokens: one of {', '.join(sources)}"
        )
    claims = dict(config.unsecured.sasl_oauthbearer_unsecured_claims)
    subject = config.oauth.sasl_oauthbearer_sub_claim_name
    if config.unsecured.sasl_oauthbearer_unsecured and not claims.get(subject):
        _refuse(
            f"sasl_oauthbearer_unsecured requires sasl_oauthbearer_unsecured_claims with the claim "
            f"{subject!r}, which names the principal"
        )
    if metadata != "none":
        _check_metadata(config.oauth, given)
    elif config.oauth.sasl_oauthbearer_token_endpoint_url is None:
        _refuse_endpoint_options(config)
    else:
        _check_endpoint(config.oauth)
        _check_grant(config, given)


def _refuse_endpoint_options(config: SecuritySections) -> None:
    """Refuse options of a token endpoint where the tokens come from elsewhere."""
    others = {
        "sasl_oauthbearer_token_file",
        "sasl_oauthbearer_extensions",
        "sasl_oauthbearer_sub_claim_name",
        "sasl_oauthbearer_allow_http",
        "sasl_oauthbearer_allowed_urls",
    }
    for part in (config.oauth, config.assertion):
        for each in options_of(type(part)):
            if each.name not in others and getattr(part, each.name) != each.default:
                _refuse(f"{each.name} requires sasl_oauthbearer_token_endpoint_url")


def _check_metadata(oauth: OAuthConfig, given: frozenset[str]) -> None:
    kind = oauth.sasl_oauthbearer_metadata_authentication_type
    for name in sorted(given):
        if name.startswith("sasl_oauth") and name not in _OF_METADATA:
            _refuse(f"{name} is given, but {_METADATA} is {kind}, which does not use it")
    if oauth.sasl_oauthbearer_token_endpoint_url is not None:
        _check_endpoint(oauth, METADATA_HOSTS)
    elif kind == AZURE:
        _refuse(
            f"{_METADATA}={AZURE!r} requires sasl_oauthbearer_token_endpoint_url with a query: "
            f"{AZURE_ENDPOINT}?api-version=2018-02-01&resource=..."
        )


def _check_endpoint(oauth: OAuthConfig, open_hosts: Collection[str] = ()) -> None:
    """Refuse a wrong token endpoint. The open hosts may be used without TLS."""
    url = oauth.sasl_oauthbearer_token_endpoint_url
    assert url is not None
    is_allowed = url.host in open_hosts or (oauth.sasl_oauthbearer_allow_http and url.is_loopback)
    if url.scheme == "http" and not is_allowed:
        _refuse(
            "sasl_oauthbearer_token_endpoint_url is an http:// URL, which shows the secret to the "
            "network: use https://. With sasl_oauthbearer_allow_http, http:// is allowed on "
            "localhost, 127.0.0.1 and ::1"
        )
    allowed = oauth.sasl_oauthbearer_allowed_urls
    if allowed and url not in allowed:
        _refuse("sasl_oauthbearer_token_endpoint_url is not among sasl_oauthbearer_allowed_urls")
    if oauth.sasl_oauthbearer_https_cafile and oauth.sasl_oauthbearer_https_cadata:
        _refuse(
            "sasl_oauthbearer_https_cafile is given together with sasl_oauthbearer_https_cadata: "
            "give one of them"
        )


def _check_grant(config: SecuritySections, given: frozenset[str]) -> None:
    oauth, assertion = config.oauth, config.assertion
    used = [name for name in config.given() if name.startswith("sasl_oauthbearer_assertion_")]
    if oauth.sasl_oauthbearer_grant_type != JWT_BEARER:
        if used:
            _refuse(f"{used[0]} requires sasl_oauthbearer_grant_type='jwt-bearer'")
        for name in ("sasl_oauthbearer_client_id", "sasl_oauthbearer_client_secret"):
            if name not in given:
                _refuse(f"sasl_oauthbearer_token_endpoint_url requires {name}")
        return
    file = "sasl_oauthbearer_assertion_file"
    keys = (
        "sasl_oauthbearer_assertion_private_key_file",
        "sasl_oauthbearer_assertion_private_key_pem",
    )
    _refuse_both(given, file, *keys)
    if not any(name in given for name in (file, *keys)):
        _refuse(f"sasl_oauthbearer_grant_type='jwt-bearer' requires {file} or {keys[0]}")
    if assertion.sasl_oauthbearer_assertion_file is not None and len(used) > 1:
        other = next(name for name in used if name != file)
        _refuse(f"{other} is given together with {file}, which is a finished assertion")
    for name in (
        "sasl_oauthbearer_client_id",
        "sasl_oauthbearer_client_secret",
        "sasl_oauthbearer_header_urlencode",
    ):
        if name in given:
            _refuse(
                f"{name} is given, but sasl_oauthbearer_grant_type is jwt-bearer, which sends an "
                "assertion in its place"
            )
