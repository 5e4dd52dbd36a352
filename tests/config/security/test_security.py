"""Security options: their forms, and combinations that the constructor rejects."""

from __future__ import annotations

import copy
import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest

from kohort import Secret
from kohort.config import OPTIONS, ConsumerConfig, SaslConfig, SecurityConfig, TlsConfig, Url
from kohort.config.security._oauth import JWT_BEARER
from kohort.errors import ConfigurationError, InvalidOptionError, UnsupportedOptionError
from tests.support.leaks import error_text, leaked

SECRET = "hunter2-correct-horse"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
PASSWORD = {"sasl_plain_username": "alice", "sasl_plain_password": SECRET}
PLAIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
IDP = {
    "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    "sasl_oauthbearer_client_id": "app",
    "sasl_oauthbearer_client_secret": SECRET,
}
SSL = {"security_protocol": "SSL"}
KEEPS_SECRETS = {
    name
    for name, each in OPTIONS.items()
    if type(each.option_type).conceal is not type(OPTIONS["group_id"].option_type).conceal
}


def security(**options: Any) -> SecurityConfig:
    return ConsumerConfig.from_kwargs(**options).security


class Provider:
    def token(self) -> str:
        return "token"


@pytest.mark.parametrize("given", ["SASL_SSL", "sasl_ssl", "Sasl_Ssl"])
def test_security_protocol_is_read_in_any_case(given: str) -> None:
    found = security(security_protocol=given, sasl_mechanism="scram-sha-256", **PASSWORD)
    assert found.security_protocol == "SASL_SSL"
    assert found.sasl.sasl_mechanism == "SCRAM-SHA-256"
    assert found.uses_tls
    assert found.uses_sasl


def test_defaults_use_neither_tls_nor_sasl() -> None:
    found = security()
    assert not found.uses_tls
    assert not found.uses_sasl
    assert found.given() == []


@pytest.mark.parametrize(
    "options",
    [
        {"sasl_mechanism": "PLAIN"},
        {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"},
        {"ssl_check_hostname": False},
        {"security_protocol": "SASL_PLAINTEXT", "ssl_check_hostname": False, **PASSWORD}
        | {"sasl_mechanism": "PLAIN"},
    ],
)
def test_defaults_of_others_are_harmless_without_their_protocol(options: Any) -> None:
    security(**options)


@pytest.mark.parametrize(
    ("options", "name", "better"),
    [
        (PASSWORD, "sasl_plain_username", "SASL_SSL"),
        ({"sasl_plain_password": SECRET}, "sasl_plain_password", "SASL_SSL"),
        ({"sasl_credentials": lambda: ("a", SECRET)}, "sasl_credentials", "SASL_SSL"),
        ({"sasl_oauth_token_provider": Provider()}, "sasl_oauth_token_provider", "SASL_SSL"),
        ({"sasl_oauthbearer_scope": "x"}, "sasl_oauthbearer_scope", "SASL_SSL"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "sasl_mechanism", "SASL_SSL"),
        ({"sasl_kerberos_keytab": "k"}, "sasl_kerberos_keytab", "SASL_SSL"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile", "SSL"),
        ({"ssl_password": SECRET}, "ssl_password", "SSL"),
        ({"ssl_ciphers": "ECDHE"}, "ssl_ciphers", "SSL"),
        ({"ssl_truststore_location": "t"}, "ssl_truststore_location", "SSL"),
        ({"security_protocol": "SSL", **PASSWORD}, "sasl_plain_username", "SASL_SSL"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "ssl_crlfile": "c"},
            "ssl_crlfile",
            "SASL_SSL",
        ),
    ],
)
def test_options_without_use_for_the_protocol_are_refused(
    options: dict[str, Any], name: str, better: str
) -> None:
    protocol = options.get("security_protocol", "PLAINTEXT")
    with pytest.raises(InvalidOptionError) as raised:
        security(**options)
    said = f"{name} is given, but security_protocol is {protocol}: use {better}"
    assert str(raised.value) == said
    assert not leaked(SECRET, error_text(raised.value))


def test_properties_are_refused_by_their_dotted_names() -> None:
    with pytest.raises(InvalidOptionError) as raised:
        ConsumerConfig.from_properties({"sasl.password": SECRET})
    assert str(raised.value) == (
        "sasl.password is given, but security.protocol is PLAINTEXT: use SASL_SSL"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"security_protocol": "SASL_SSL"}, "requires sasl_mechanism: one of PLAIN, SCRAM"),
        (PLAIN, "sasl_mechanism=PLAIN requires sasl_plain_username, or sasl_credentials"),
        (PLAIN | {"sasl_plain_username": "a"}, "requires sasl_plain_password"),
        (PLAIN | {"sasl_mechanism": "SCRAM-SHA-256"} | {"sasl_plain_password": "x"}, "_username"),
        (PLAIN | PASSWORD | {"sasl_credentials": Provider().token}, "give one of them"),
        (PLAIN | PASSWORD | {"sasl_plain_password": "a\0b"}, "NUL"),
        (PLAIN | PASSWORD | {"sasl_delegation_token": True}, "which does not use it"),
        (PLAIN | PASSWORD | {"sasl_kerberos_keytab": "k"}, "which does not use it"),
        (PLAIN | PASSWORD | {"sasl_oauthbearer_scope": "s"}, "which does not use it"),
        (OAUTH | PASSWORD | IDP, "sasl_plain_username is given, but sasl_mechanism is OAUTHBEARER"),
        (OAUTH, "requires a source of tokens: one of sasl_oauth_token_provider, "),
        (OAUTH | IDP | {"sasl_oauth_token_provider": Provider()}, "give one of them"),
        (OAUTH | IDP | {"sasl_oauthbearer_token_file": "t"}, "give one of them"),
        (OAUTH | {"sasl_oauthbearer_client_id": "app"}, "requires a source of tokens"),
        (
            OAUTH | {"sasl_oauthbearer_token_file": "t", "sasl_oauthbearer_scope": "s"},
            "sasl_oauthbearer_scope requires sasl_oauthbearer_token_endpoint_url",
        ),
        (OAUTH | IDP | {"sasl_oauthbearer_client_secret": None}, "_client_secret"),
        (
            OAUTH | IDP | {"sasl_oauthbearer_assertion_file": "a"},
            "requires sasl_oauthbearer_grant_type='jwt-bearer'",
        ),
        (
            OAUTH | IDP | {"sasl_oauthbearer_grant_type": "jwt-bearer"},
            "requires sasl_oauthbearer_assertion_file or sasl_oauthbearer_assertion_private_key",
        ),
        (
            OAUTH
            | IDP
            | {"sasl_oauthbearer_grant_type": JWT_BEARER}
            | {"sasl_oauthbearer_assertion_file": "a"}
            | {"sasl_oauthbearer_assertion_claim_aud": "x"},
            "which is a finished assertion",
        ),
        (
            OAUTH | IDP | {"sasl_oauthbearer_token_endpoint_url": "http://idp/token"},
            "is an http:// URL",
        ),
        (
            OAUTH
            | IDP
            | {"sasl_oauthbearer_token_endpoint_url": "http://idp/token"}
            | {"sasl_oauthbearer_allow_http": True},
            "is an http:// URL",
        ),
        (
            OAUTH | IDP | {"sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:80/token"},
            "is an http:// URL",
        ),
        (
            OAUTH | IDP | {"sasl_oauthbearer_allowed_urls": ["https://idp/token2"]},
            "is not among sasl_oauthbearer_allowed_urls",
        ),
        (
            OAUTH
            | IDP
            | {"sasl_oauthbearer_grant_type": JWT_BEARER}
            | {"sasl_oauthbearer_assertion_file": "a"},
            "sasl_oauthbearer_client_id is given, but sasl_oauthbearer_grant_type is jwt-bearer",
        ),
        (
            OAUTH | IDP | {"sasl_oauthbearer_unsecured_lifetime_seconds": 5},
            "requires sasl_oauthbearer_unsecured",
        ),
        (OAUTH | {"sasl_oauthbearer_unsecured": True}, "with the claim 'sub'"),
        (
            OAUTH | IDP | {"sasl_oauthbearer_unsecured_claims": {"sub": "alice"}},
            "set sasl_oauthbearer_unsecured too",
        ),
        (
            OAUTH
            | IDP
            | {"sasl_oauthbearer_https_cafile": "a"}
            | {"sasl_oauthbearer_https_cadata": CERTIFICATE},
            "give one of them",
        ),
        (SSL | {"ssl_cafile": "a", "ssl_cadata": CERTIFICATE}, "give one of them"),
        (SSL | {"ssl_certfile": "a", "ssl_certdata": CERTIFICATE}, "give one of them"),
        (SSL | {"ssl_certdata": CERTIFICATE}, "without its private key"),
        (SSL | {"ssl_keydata": KEY}, "without its certificate"),
        (SSL | {"ssl_keyfile": "k"}, "without its certificate"),
        (SSL | {"ssl_password": SECRET}, "ssl_password is the password of a private key"),
        (SSL | {"ssl_context": ssl.create_default_context(), "ssl_cafile": "a"}, "ssl_cafile"),
        (
            SSL | {"ssl_context": ssl.create_default_context(), "ssl_check_hostname": False},
            "ssl_context is given together with ssl_check_hostname",
        ),
        (SSL | {"ssl_keystore_password": SECRET}, "without ssl_keystore_location"),
        (SSL | {"ssl_truststore_password": SECRET}, "without ssl_truststore_location"),
        (SSL | {"ssl_keystore_location": "a"}, "requires ssl_keystore_password"),
        (
            SSL | {"ssl_keystore_location": "a", "ssl_keystore_password": "b", "ssl_certfile": "c"},
            "give one of them",
        ),
        (
            SSL
            | {"ssl_keystore_location": "a", "ssl_keystore_type": "pem"}
            | {"ssl_keystore_password": SECRET},
            "the password of its key is ssl_password",
        ),
        (
            SSL
            | {"ssl_truststore_location": "a", "ssl_truststore_type": "PEM"}
            | {"ssl_truststore_password": SECRET},
            "which has none",
        ),
        (SSL | {"ssl_truststore_location": "a", "ssl_cafile": "b"}, "give one of them"),
    ],
)
def test_options_that_cannot_work_together_are_refused(options: Any, said: str) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        security(**options)
    assert said in str(raised.value)
    assert not leaked(SECRET, error_text(raised.value))


@pytest.mark.parametrize(
    "options",
    [
        PLAIN | PASSWORD,
        PLAIN | {"sasl_credentials": lambda: ("alice", SECRET)},
        PLAIN | PASSWORD | {"sasl_mechanism": "scram-sha-512", "sasl_delegation_token": True},
        OAUTH | IDP,
        OAUTH | {"sasl_oauth_token_provider": Provider()},
        OAUTH | {"sasl_oauth_token_provider": Provider().token},
        OAUTH
        | {"sasl_oauthbearer_token_file": Path("token"), "sasl_oauthbearer_extensions": "a=b"},
        OAUTH
        | {"sasl_oauthbearer_unsecured": True}
        | {"sasl_oauthbearer_unsecured_claims": {"sub": "alice", "scope": ["a", "b"], "n": 1}},
        OAUTH
        | IDP
        | {"sasl_oauthbearer_token_endpoint_url": "http://[::1]:80/token"}
        | {"sasl_oauthbearer_allow_http": True},
        OAUTH | IDP | {"sasl_oauthbearer_allowed_urls": "https://a/, https://IDP:443/token"},
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"},
        SSL,
        SSL | {"ssl_certfile": "c", "ssl_keyfile": "k", "ssl_password": SECRET},
        SSL | {"ssl_certdata": CERTIFICATE, "ssl_keydata": KEY, "ssl_password": lambda: SECRET},
        SSL | {"ssl_context": ssl.create_default_context()},
    ],
)
def test_good_combinations_are_taken_and_show_no_secret(options: dict[str, Any]) -> None:
    config = ConsumerConfig.from_kwargs(**options)
    assert config.security == SecurityConfig(
        security_protocol=config.security.security_protocol,
        tls=config.security.tls,
        sasl=config.security.sasl,
        oauth=config.security.oauth,
        unsecured=config.security.unsecured,
    )
    assert not leaked(SECRET, repr(config), str(config))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security_protocol", SECRET),
        ("security_protocol", 5),
        ("ssl_context", SECRET),
        ("ssl_cafile", ""),
        ("ssl_cafile", 5),
        ("ssl_cafile", CERTIFICATE),
        ("ssl_cadata", SECRET),
        ("ssl_cadata", KEY + CERTIFICATE),
        ("ssl_cadata", 5),
        ("ssl_certdata", b"\x30\x82"),
        ("ssl_keydata", SECRET),
        ("ssl_keydata", 5),
        ("ssl_password", 5),
        ("ssl_password", ""),
        ("ssl_ciphers", ""),
        ("ssl_ciphers", 5),
        ("ssl_ciphers", "TLS_RSA_WITH_RC4_128_MD5"),
        ("ssl_ciphers", "TLS_AES_256_GCM_SHA384"),
        (
            "ssl_ciphers",
            "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256",
        ),
        ("ssl_check_hostname", "no"),
        ("ssl_min_version", "TLSv1.1"),
        ("ssl_min_version", 5),
        ("ssl_keystore_type", "BKS"),
        ("sasl_mechanism", SECRET),
        ("sasl_plain_username", ""),
        ("sasl_plain_username", "a\0b"),
        ("sasl_plain_password", [SECRET]),
        ("sasl_plain_password", f"{SECRET}\ud800"),
        ("sasl_credentials", ("alice", SECRET)),
        ("sasl_oauth_token_provider", SECRET),
        ("sasl_oauth_token_provider", Provider),
        ("sasl_oauthbearer_client_secret", {"secret": SECRET}),
        ("sasl_oauthbearer_grant_type", SECRET),
        ("sasl_oauthbearer_extensions", {"auth": "x"}),
        ("sasl_oauthbearer_extensions", {"a1": "x"}),
        ("sasl_oauthbearer_extensions", {"a": "\1"}),
        ("sasl_oauthbearer_extensions", {"a": ""}),
        ("sasl_oauthbearer_extensions", {"a": 1}),
        ("sasl_oauthbearer_extensions", 1),
        ("sasl_oauthbearer_extensions", SECRET),
        ("sasl_oauthbearer_unsecured_claims", {"sub": None}),
        ("sasl_oauthbearer_unsecured_claims", SECRET),
        ("sasl_oauthbearer_unsecured_claims", {"": "x"}),
        ("sasl_oauthbearer_unsecured_lifetime_seconds", SECRET),
        ("sasl_oauthbearer_assertion_private_key_pem", SECRET),
        ("sasl_oauthbearer_assertion_algorithm", "none"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://app:{SECRET}@idp/token"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://{SECRET}@idp/token"),
        ("sasl_oauthbearer_token_endpoint_url", f"file:///{SECRET}"),
        ("sasl_oauthbearer_token_endpoint_url", f"ftp://idp/{SECRET}"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://idp:{SECRET}/"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://idp/{SECRET}\r\nHost: x"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://idp/ {SECRET}"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://idp/#{SECRET}"),
        ("sasl_oauthbearer_token_endpoint_url", f"https:///{SECRET}"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://[{SECRET}/"),
        ("sasl_oauthbearer_token_endpoint_url", "https://idp\\@evil/"),
        ("sasl_oauthbearer_token_endpoint_url", f"https://idp/{SECRET * 200}"),
        ("sasl_oauthbearer_token_endpoint_url", [SECRET]),
        ("sasl_oauthbearer_allowed_urls", [f"https://a:{SECRET}@idp/"]),
        ("sasl_oauthbearer_allowed_urls", {SECRET: 1}),
    ],
)
def test_a_wrong_value_of_a_security_option_is_not_repeated(name: str, value: Any) -> None:
    with pytest.raises(InvalidOptionError) as raised:
        security(**{name: value})
    assert str(raised.value).startswith(f"{name}: expected ")
    assert not leaked(SECRET, str(raised.value))
    if name in KEEPS_SECRETS:
        assert not leaked(SECRET, error_text(raised.value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl_plain_pasword", SECRET),
        ("sasl_plain_pasword", [SECRET]),
        ("sasl.password", SECRET),
        ("proxy_url", f"socks4://user:{SECRET}@host"),
        ("socks5_proxy", f"user:{SECRET}@host"),
    ],
)
def test_a_wrong_option_shows_neither_its_value_nor_others(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name.split("_")[0]) as raised:
        ConsumerConfig.from_kwargs(**PLAIN, **PASSWORD, **{name: value})
    assert not leaked(SECRET, error_text(raised.value))


def test_verification_of_certificates_cannot_be_turned_off() -> None:
    with pytest.raises(UnsupportedOptionError, match="ssl_cafile"):
        ConsumerConfig.from_properties({"enable.ssl.certificate.verification": "false"})


@pytest.mark.parametrize(
    ("mechanism", "host", "warns"),
    [
        ("PLAIN", "kafka-1.example", True),
        ("PLAIN", "localhost", False),
        ("PLAIN", "127.1.2.3", False),
        ("PLAIN", "[::1]", False),
        ("SCRAM-SHA-256", "kafka-2.example", False),
    ],
)
def test_a_password_in_clear_text_is_warned_of_once(
    mechanism: str, host: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        security(
            bootstrap_servers=f"{host}:9092",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            **PASSWORD,
        )
    logged = [each.getMessage() for each in caplog.records]
    assert len(logged) == warns
    assert all("use SASL_SSL" in text and host in text for text in logged)


# -- forms of values ------------------------------------------------------------------------


def test_java_names_of_cipher_suites_become_those_of_openssl() -> None:
    names = (
        "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256,"
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA,"
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,TLS_DHE_RSA_WITH_AES_256_CBC_SHA256,"
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"
    )
    found = security(**SSL, ssl_ciphers=names).tls.ssl_ciphers
    assert found == (
        "ECDHE-ECDSA-AES128-GCM-SHA256:AES128-SHA:ECDHE-RSA-CHACHA20-POLY1305:"
        "DHE-RSA-AES256-SHA256:ECDHE-RSA-AES256-SHA384"
    )
    context = ssl.create_default_context()
    context.set_ciphers(found)
    known = {each["name"] for each in context.get_ciphers()}
    assert set(found.split(":")) <= known
    assert security(**SSL, ssl_ciphers="ECDHE+AESGCM").tls.ssl_ciphers == "ECDHE+AESGCM"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("TLSv1.2,TLSv1.3", "TLSv1.2"),
        ("TLSv1.3", "TLSv1.3"),
        ("TLSv1,TLSv1.1,TLSv1.2", "TLSv1.2"),
    ],
)
def test_the_lowest_enabled_protocol_of_java_counts(text: str, version: str) -> None:
    config = ConsumerConfig.from_properties({"ssl.enabled.protocols": text})
    assert config.security.tls.ssl_min_version == version
    assert security(ssl_min_version=ssl.TLSVersion.TLSv1_3).tls.ssl_min_version == "TLSv1.3"


@pytest.mark.parametrize(("text", "checked"), [("", False), ("none", False), ("HTTPS", True)])
def test_javas_identification_algorithm_is_the_host_check(text: str, checked: bool) -> None:
    properties = {"ssl.endpoint.identification.algorithm": text}
    config = ConsumerConfig.from_properties(properties)
    assert config.security.tls.ssl_check_hostname is checked


def test_names_of_java_and_librdkafka_stand_for_one_option() -> None:
    config = ConsumerConfig.from_properties(
        {
            "security.protocol": "ssl",
            "ssl.ca.pem": CERTIFICATE,
            "ssl.keystore.certificate.chain": CERTIFICATE,
            "ssl.certificate.pem": CERTIFICATE,
            "ssl.key.pem": KEY,
            "ssl.key.password": f" {SECRET} ",
        }
    )
    tls = config.security.tls
    assert tls.ssl_cadata == tls.ssl_certdata == CERTIFICATE.strip()
    assert tls.ssl_keydata == Secret(KEY.strip())
    assert tls.key_password() == Secret(SECRET)
    twice = {"ssl.keystore.key": KEY.replace("IE", SECRET), "ssl.key.pem": KEY}
    with pytest.raises(InvalidOptionError, match=r"the same as ssl\.keystore\.key") as raised:
        ConsumerConfig.from_properties(twice)
    assert not leaked(SECRET, error_text(raised.value))


def test_stores_of_java_in_pem_become_pem_files(tmp_path: Path) -> None:
    trusted = tmp_path / "trusted"
    trusted.write_text(CERTIFICATE)
    config = ConsumerConfig.from_properties(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "client.pem",
            "ssl.key.password": SECRET,
            "ssl.truststore.location": str(trusted),
        }
    )
    assert config.security.tls.ssl_certfile == "client.pem"
    assert config.security.tls.ssl_cafile == str(trusted)
    assert config.security.stores == SecurityConfig().stores


def test_pem_text_of_java_needs_no_location() -> None:
    config = ConsumerConfig.from_properties(
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": KEY,
            "ssl.keystore.certificate.chain": CERTIFICATE,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": CERTIFICATE,
        }
    )
    assert config.security.tls.ssl_keydata == Secret(KEY.strip())
    assert config.security.stores == SecurityConfig().stores


def test_pem_text_in_one_line_is_divided_into_lines() -> None:
    body = "MIIB" * 40
    lines = f"{body[:64]}\n{body[64:128]}\n{body[128:]}\n"
    one = f"-----BEGIN CERTIFICATE----- {body[:100]} {body[100:]} -----END CERTIFICATE-----"
    key = one.replace("CERTIFICATE", "PRIVATE KEY")
    tls = security(**SSL, ssl_cadata=f"{one} {one}", ssl_certdata=one, ssl_keydata=key).tls
    whole = f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n"
    assert tls.ssl_certdata == whole
    assert tls.ssl_cadata == whole * 2
    assert tls.ssl_keydata == Secret(whole.replace("CERTIFICATE", "PRIVATE KEY"))


@pytest.mark.parametrize("given", ["JKS", None])
def test_a_java_keystore_is_refused_with_the_command(tmp_path: Path, given: str | None) -> None:
    store = tmp_path / "client.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    for kind in ("keystore", "truststore"):
        options = {f"ssl_{kind}_location": store, f"ssl_{kind}_password": SECRET}
        with pytest.raises(InvalidOptionError, match="keytool -importkeystore") as raised:
            security(**SSL, **options, **{f"ssl_{kind}_type": given})
        assert not leaked(SECRET, error_text(raised.value))
    with pytest.raises(InvalidOptionError, match="keytool"):
        security(
            **SSL,
            ssl_keystore_location="missing.jks",
            ssl_keystore_type="jks",
            ssl_keystore_password=SECRET,
        )


@pytest.mark.parametrize("given", ["JKS", "PKCS12", None])
def test_a_pkcs12_file_is_one_whatever_java_calls_it(tmp_path: Path, given: str | None) -> None:
    store = tmp_path / "client.p12"
    store.write_bytes(b"\x30\x82\x0a\x00")
    found = security(
        **SSL,
        ssl_keystore_location=store,
        ssl_keystore_password=SECRET,
        ssl_keystore_type=given,
    )
    assert found.stores.ssl_keystore_location == str(store)


def test_a_url_shows_neither_query_nor_default_port() -> None:
    url = security(
        **OAUTH
        | IDP
        | {"sasl_oauthbearer_token_endpoint_url": f"https://IDP:443/token?key={SECRET}"}
    ).oauth.sasl_oauthbearer_token_endpoint_url
    assert url is not None
    assert str(url) == "https://idp/token"
    assert url.target == f"/token?key={SECRET}"
    assert (url.host, url.port, url.is_loopback) == ("idp", 443, False)
    assert not leaked(SECRET, repr(url), f"{url}")
    assert repr(Url("https", "::1", 8443, "/", "")) == "<https://[::1]:8443/>"


# -- secrets --------------------------------------------------------------------------------


def test_a_secret_shows_nothing() -> None:
    secret = Secret(SECRET)
    assert f"{secret} {secret!r} {secret!s} {secret:>30}" == "*** *** *** ***"
    assert secret.reveal() == SECRET
    assert secret.reveal_bytes() == SECRET.encode()
    assert Secret(b"\xff\0").reveal_bytes() == b"\xff\0"
    assert Secret(secret) == secret
    assert not hasattr(secret, "__dict__")


def test_secrets_are_equal_by_their_value_and_have_no_hash() -> None:
    assert Secret("a") == Secret(b"a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert not Secret("")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Secret("a"))


@pytest.mark.parametrize("how", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_neither_pickled_nor_copied(how: Any) -> None:
    config = ConsumerConfig.from_kwargs(**PLAIN, **PASSWORD)
    for each in (Secret(SECRET), [Secret(SECRET)] if how is not copy.copy else Secret(SECRET)):
        with pytest.raises(TypeError, match="a file or of an environment variable") as raised:
            how(each)
        assert not leaked(SECRET, error_text(raised.value))
    if how is not copy.copy:
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            how(config)


def test_a_secret_is_made_of_text_only() -> None:
    with pytest.raises(TypeError, match="not list") as raised:
        Secret([SECRET])  # type: ignore[arg-type]
    assert not leaked(SECRET, error_text(raised.value))


def test_a_section_keeps_passwords_as_secrets() -> None:
    config = SaslConfig(sasl_plain_password=SECRET)  # type: ignore[arg-type]
    assert isinstance(config.sasl_plain_password, Secret)
    assert TlsConfig(ssl_password=lambda: b"x").key_password() == Secret("x")
    assert TlsConfig().key_password() is None
    with pytest.raises(InvalidOptionError) as raised:
        SaslConfig(sasl_plain_password=[SECRET])  # type: ignore[arg-type]
    assert not leaked(SECRET, error_text(raised.value))


def test_the_options_that_keep_secrets_are_known() -> None:
    assert {
        "proxy_url",
        "sasl_credentials",
        "sasl_oauth_token_provider",
        "sasl_oauthbearer_allowed_urls",
        "sasl_oauthbearer_assertion_private_key_passphrase",
        "sasl_oauthbearer_assertion_private_key_pem",
        "sasl_oauthbearer_client_secret",
        "sasl_oauthbearer_token_endpoint_url",
        "sasl_plain_password",
        "socks5_proxy",
        "ssl_keydata",
        "ssl_keystore_password",
        "ssl_password",
        "ssl_truststore_password",
    } == KEEPS_SECRETS


def test_a_context_of_a_server_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="a context of a server"):
        SecurityConfig(
            security_protocol="SSL",
            tls=TlsConfig(ssl_context=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)),
        )
