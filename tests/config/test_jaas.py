"""The option sasl.jaas.config: 34 texts with the results of Java 4.3.1."""

from __future__ import annotations

import importlib.machinery
import json
import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from kohort.config import ConsumerConfig, Secret
from kohort.config._jaas import (
    NO_FLAG,
    NO_MODULE,
    NO_VALUE,
    NOT_ENDED,
    NOT_ONE,
    JaasEntry,
    parse_jaas,
)
from kohort.config._names import TRANSLATED
from kohort.config._translated import TRANSLATED as DOCUMENTED
from kohort.errors import ConfigurationError, InvalidOptionError, UnsupportedOptionError
from tests.support.leaks import error_text, leaked

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "jaas_config.json").read_text(encoding="utf-8")
)["cases"]
FAULTS = {
    "Value not specified for key": NO_VALUE,
    "not terminated by semi-colon": NOT_ENDED,
    "Invalid login module control flag": NO_FLAG,
    "control flag not specified": NO_FLAG,
    "Login module not specified": NO_MODULE,
    "should be 1 module": NOT_ONE,
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
SECRET = "hunter2-correct-horse"


def read(text: str, mechanism: str = "PLAIN", **more: Any) -> ConsumerConfig:
    return ConsumerConfig.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": text,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_jaas_text_is_read_as_by_java(case: dict[str, Any]) -> None:
    found = parse_jaas(Secret(case["text"]))
    if "entries" in case:
        (entry,) = case["entries"]
        assert isinstance(found, JaasEntry)
        assert found.module == entry["module"]
        assert found.flag == entry["flag"]
        assert {key: each.reveal() for key, each in found.options.items()} == entry["options"]
    elif "is not allowed" in case["error"]:
        with pytest.raises(UnsupportedOptionError, match="JndiLoginModule"):
            read(case["text"])
    else:
        (fault,) = (ours for theirs, ours in FAULTS.items() if theirs in case["error"])
        assert found == fault
        with pytest.raises(InvalidOptionError, match=r"^sasl\.jaas\.config: ") as raised:
            read(case["text"])
        assert fault in str(raised.value)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required a='1' / a comment up to the end ' ;\n b=c;", {"a": "1", "b": "c"}),
        ("M required 'a'=\"1\";", {"a": "1"}),
        (r"M required a='\7\18\400\q\''; ", {"a": "\7\x018\x200q'"}),
        ("M required a=b/* ; */c=d;", {"a": "b", "c": "d"}),
        ("M required a=b\x00c=d;", {"a": "b", "c": "d"}),
    ],
)
def test_words_quotes_and_comments_are_those_of_java(text: str, options: dict[str, str]) -> None:
    found = parse_jaas(Secret(text))
    assert isinstance(found, JaasEntry)
    assert {key: each.reveal() for key, each in found.options.items()} == options


@pytest.mark.parametrize(
    "text", ["M required a=b; 5", "'' required;", "M required a", "M required a="]
)
def test_a_text_that_stops_early_is_a_fault(text: str) -> None:
    assert isinstance(parse_jaas(Secret(text)), str)


def test_user_and_password_come_from_the_jaas_text() -> None:
    config = read(f'{PLAIN} required username="alice" password="{SECRET}";')
    assert config.security.sasl.sasl_plain_username == "alice"
    assert config.security.sasl.sasl_plain_password == Secret(SECRET)
    assert not config.security.sasl.sasl_delegation_token


def test_a_delegation_token_comes_from_the_jaas_text() -> None:
    config = read(
        'a.b.ScramLoginModule required tokenauth=true username="id" password="hmac";',
        "scram-sha-512",
    )
    assert config.security.sasl.sasl_delegation_token
    assert config.security.sasl.sasl_plain_username == "id"


def test_names_of_the_error_are_those_that_were_given() -> None:
    with pytest.raises(InvalidOptionError, match=r"sasl\.jaas\.config") as raised:
        read(f'{PLAIN} required username="alice" password="{SECRET}";', "OAUTHBEARER")
    assert not leaked(SECRET, error_text(raised.value))
    with pytest.raises(InvalidOptionError, match=r"sasl\.password") as raised:
        read(f'{PLAIN} required username="a" password="{SECRET}";', sasl_password="other")
    assert not leaked(SECRET, error_text(raised.value))


def test_client_credentials_come_from_the_jaas_text() -> None:
    config = read(
        f'{OAUTH} required clientId="app" clientSecret="{SECRET}" scope="a b" '
        'extension_logicalCluster="lkc-1";',
        "OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://idp/token",
    )
    oauth = config.security.oauth
    assert oauth.sasl_oauthbearer_client_id == "app"
    assert oauth.sasl_oauthbearer_client_secret == Secret(SECRET)
    assert oauth.sasl_oauthbearer_scope == "a b"
    assert oauth.sasl_oauthbearer_extensions == (("logicalCluster", "lkc-1"),)


def test_new_options_win_over_deprecated_jaas_options(caplog: pytest.LogCaptureFixture) -> None:
    config = ConsumerConfig.from_properties(
        {
            "sasl.jaas.config": f'{OAUTH} required clientId="old" clientSecret="{SECRET}" scope=x;',
            "sasl.mechanism": "OAUTHBEARER",
            "security.protocol": "SASL_SSL",
            "sasl.oauthbearer.client.credentials.client.id": "new",
            "sasl.oauthbearer.client.credentials.client.secret": "newer",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        }
    )
    oauth = config.security.oauth
    assert oauth.sasl_oauthbearer_client_id == "new"
    assert oauth.sasl_oauthbearer_client_secret == Secret("newer")
    assert oauth.sasl_oauthbearer_scope == "x"
    logged = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(logged) == 2
    assert "clientId is deprecated and ignored" in logged[0]
    assert "sasl.oauthbearer.client.credentials.client.id" in logged[0]
    assert not leaked(SECRET, caplog.text)


def test_unsecured_claims_need_a_flag_of_their_name() -> None:
    text = (
        f'{OAUTH} required unsecuredLoginStringClaim_sub="alice" '
        'unsecuredLoginNumberClaim_n="1.5" unsecuredLoginListClaim_scope=",a,b" '
        'unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_traceId="7";'
    )
    with pytest.raises(InvalidOptionError, match=r"sasl\.oauthbearer\.unsecured"):
        read(text, "OAUTHBEARER")
    unsecured = read(text, "OAUTHBEARER", sasl_oauthbearer_unsecured="true").security.unsecured
    assert dict(unsecured.sasl_oauthbearer_unsecured_claims) == {
        "sub": "alice",
        "n": 1.5,
        "scope": ("a", "b"),
    }
    assert unsecured.sasl_oauthbearer_unsecured_lifetime_seconds == 60


def test_kerberos_options_come_from_the_jaas_text() -> None:
    config = read(
        f'{KERBEROS} required useKeyTab=true storeKey=true keyTab="/etc/x.keytab" '
        'principal="a@R" serviceName="broker";',
        "GSSAPI",
    )
    sasl = config.security.sasl
    assert sasl.sasl_kerberos_keytab == "/etc/x.keytab"
    assert sasl.sasl_kerberos_principal == "a@R"
    assert sasl.sasl_kerberos_service_name == "broker"


def test_a_keytab_that_java_does_not_read_is_not_read() -> None:
    config = read(
        f'{KERBEROS} required useTicketCache=true keyTab="/etc/x.keytab" ticketCache="/tmp/cc";',
        "GSSAPI",
    )
    assert config.security.sasl.sasl_kerberos_keytab is None
    assert config.security.sasl.sasl_kerberos_ccache == "/tmp/cc"


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("com.sun.security.auth.module.JndiLoginModule", "JndiLoginModule"),
        ("com.sun.security.auth.module.LdapLoginModule", "LdapLoginModule"),
        ("software.amazon.msk.auth.iam.IAMLoginModule", "aws-msk-iam-sasl-signer"),
        ("com.example.EvilLoginModule", "EvilLoginModule"),
        (SECRET.replace("-", "_"), "this login module"),
    ],
)
def test_other_login_modules_are_refused_by_name(module: str, said: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=said) as raised:
        read(f'{module} required username="a" password="{SECRET}";')
    assert not leaked(SECRET, error_text(raised.value))
    assert not leaked("hunter2", error_text(raised.value))


@pytest.mark.parametrize(
    "text",
    [
        f"{PLAIN} required username=a password={SECRET}@x;",
        f'{PLAIN} required username=a password="{SECRET}"',
        f'{PLAIN} required username=a password="x" {SECRET}=y;',
        f'{PLAIN} required username=a password="x\n{SECRET}";',
        f'{PLAIN} {SECRET} username=a password="x";',
        f'{SECRET} required username=a password="x";',
        f'{OAUTH} required clientSecret="x" {SECRET}="x";',
        f'{OAUTH} required unsecuredLoginNumberClaim_n="{SECRET}";',
        f'{OAUTH} required unsecuredLoginLifetimeSeconds="{SECRET}";',
        f'{PLAIN} required username=a password="${{file:/{SECRET}:key}}";',
    ],
)
def test_an_error_of_a_jaas_text_repeats_nothing_of_it(text: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    assert not leaked(SECRET, error_text(raised.value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.login.callback.handler.class", "com.example.Mine"),
        ("sasl.login.callback.handler.class", "software.amazon.msk.auth.iam.IAMOAuthBearerLogin"),
        ("sasl.oauthbearer.jwt.retriever.class", "com.example.Mine"),
        ("sasl.client.callback.handler.class", "com.example.Mine"),
        ("sasl.login.class", "com.example.Mine"),
        ("ssl.engine.factory.class", "com.example.Mine"),
        ("ssl.provider", "BC"),
        ("ssl.trustmanager.algorithm", "Mine"),
        ("security.providers", "com.example.Mine"),
        ("config.providers", "file"),
        ("sasl.password", "${file:/etc/passwords:alice}"),
        ("group.id", "${env:GROUP}"),
    ],
)
def test_classes_and_references_are_refused_unresolved(name: str, value: str) -> None:
    with pytest.raises(UnsupportedOptionError) as raised:
        ConsumerConfig.from_properties({name: value})
    assert str(raised.value).startswith(f"{name} is not supported")
    assert value not in str(raised.value)


def test_kafkas_own_classes_are_known_by_name() -> None:
    config = ConsumerConfig.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer"
            ".secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer"
            ".JwtBearerJwtRetriever",
            "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
            "sasl.oauthbearer.assertion.file": "assertion.jwt",
        }
    )
    assert config.security.oauth.sasl_oauthbearer_grant_type.endswith(":jwt-bearer")


def test_claims_of_librdkafka_are_read() -> None:
    config = ConsumerConfig.from_properties(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principalClaimName=azp principal=admin "
            "scopeClaimName=roles scope=role1,role2 lifeSeconds=600 extension_traceId=123",
        }
    )
    unsecured = config.security.unsecured
    assert dict(unsecured.sasl_oauthbearer_unsecured_claims) == {
        "azp": "admin",
        "roles": ("role1", "role2"),
    }
    assert unsecured.sasl_oauthbearer_unsecured_lifetime_seconds == 600
    assert config.security.oauth.sasl_oauthbearer_sub_claim_name == "azp"
    assert config.security.oauth.sasl_oauthbearer_extensions == (("traceId", "123"),)


def test_oauth_cb_of_confluent_kafka_is_a_token_provider() -> None:
    calls = []

    def oauth_cb(config: str) -> tuple[str, float, str, dict[str, str]]:
        calls.append(config)
        return "token", 5.0, "alice", {"logicalCluster": "lkc-1"}

    config = ConsumerConfig.from_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": oauth_cb,
            "sasl.oauthbearer.config": f"password={SECRET}",
        }
    )
    provider = config.security.sasl.sasl_oauth_token_provider
    assert provider.token() == ("token", 5.0)
    assert provider.extensions() == {"logicalCluster": "lkc-1"}
    assert calls == [f"password={SECRET}"]
    assert not leaked(SECRET, repr(config))


def test_oauth_cb_may_be_a_token_provider() -> None:
    class Provider:
        def token(self) -> str:
            return "token"

    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    provider = Provider()
    config = ConsumerConfig.from_properties(given | {"oauth_cb": provider})
    assert config.security.sasl.sasl_oauth_token_provider is provider
    with pytest.raises(InvalidOptionError, match=r"or an object with token\(\)"):
        ConsumerConfig.from_properties(given | {"oauth_cb": 5})


def test_every_translated_name_is_documented() -> None:
    assert DOCUMENTED.keys() == TRANSLATED


class Signer:
    """A stub of aws-msk-iam-sasl-signer-python."""

    @staticmethod
    def generate_auth_token(region: str) -> tuple[str, int]:
        return f"default-{region}", 1_900_000_000_000

    @staticmethod
    def generate_auth_token_from_profile(region: str, profile: str) -> tuple[str, int]:
        return f"{profile}-{region}", 1_900_000_000_000

    @staticmethod
    def generate_auth_token_from_role_arn(
        region: str, role: str, session: str = "s"
    ) -> tuple[str, int]:
        return f"{role}-{session}-{region}", 1_900_000_000_000


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = types.ModuleType("aws_msk_iam_sasl_signer")
    stub.__spec__ = importlib.machinery.ModuleSpec("aws_msk_iam_sasl_signer", None)
    monkeypatch.setattr(stub, "MSKAuthTokenProvider", Signer, raising=False)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", stub)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"
MSK_HOST = "b-1.orders.ab12.c2.kafka.eu-west-1.amazonaws.com:9098"


def read_iam(text: str, server: str = MSK_HOST, **more: str) -> Any:
    config = ConsumerConfig.from_properties(
        {
            "bootstrap.servers": server,
            "security.protocol": "SASL_SSL",
            "sasl.jaas.config": text,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )
    assert config.security.sasl.sasl_mechanism == "OAUTHBEARER"
    return config.security.sasl.sasl_oauth_token_provider


@pytest.mark.usefixtures("signer")
@pytest.mark.parametrize(
    ("options", "token"),
    [
        ("", "default-eu-west-1"),
        (' awsProfileName="p"', "p-eu-west-1"),
        (" awsRoleArn='r'", "r-s-eu-west-1"),
        (" awsRoleArn='r' awsRoleSessionName=x", "r-x-eu-west-1"),
    ],
)
def test_iam_module_is_the_signer_of_msk(options: str, token: str) -> None:
    assert read_iam(f"{IAM}{options};").token() == (token, 1_900_000_000_000)


@pytest.mark.usefixtures("signer")
def test_iam_module_takes_a_file_of_java() -> None:
    provider = read_iam(
        f"{IAM};",
        sasl_mechanism="AWS_MSK_IAM",
        sasl_client_callback_handler_class="software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    )
    assert provider.token()[0] == "default-eu-west-1"


@pytest.mark.usefixtures("signer")
def test_iam_module_takes_the_region_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOptionError, match="AWS_REGION"):
        read_iam(f"{IAM};", "kafka.example.org:9098")
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    assert read_iam(f"{IAM};", "kafka.example.org:9098").token()[0] == "default-us-east-2"


@pytest.mark.usefixtures("signer")
@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        (f"{IAM} awsDebugCreds=true;", {}, "options that kohort does not know"),
        (f"{IAM};", {"sasl_mechanism": "PLAIN"}, "sasl.mechanism"),
        (f"{IAM};", {"sasl_client_callback_handler_class": "a.B"}, "callback.handler.class"),
        (f"{PLAIN} required username=a password=b;", {"sasl_mechanism": "AWS_MSK_IAM"}, "MSK"),
    ],
)
def test_iam_module_refuses_what_does_not_fit(text: str, more: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_iam(text, **more)


def test_properties_of_config_providers_are_refused() -> None:
    with pytest.raises(UnsupportedOptionError, match=r"config\.providers\.file\.class"):
        ConsumerConfig.from_properties({"config.providers.file.class": "a.FileConfigProvider"})


ENDPOINT: dict[str, Any] = {"sasl_oauthbearer_token_endpoint_url": "https://idp/token"}
CLIENT = f'{OAUTH} required clientId="app" clientSecret="{SECRET}"'


def test_cas_of_the_token_endpoint_are_in_the_module_options() -> None:
    given = 'ssl.truststore.type="PEM" ssl.truststore.location="/etc/idp.pem"'
    config = read(f"{CLIENT} {given} ssl.protocol=SSL;", "OAUTHBEARER", **ENDPOINT)
    assert config.security.oauth.sasl_oauthbearer_https_cafile == "/etc/idp.pem"


def test_ssl_protocol_of_javas_examples_is_ignored() -> None:
    config = read(f'{CLIENT} scope="x" ssl.protocol="SSL" ;', "OAUTHBEARER", **ENDPOINT)
    assert config.security.oauth.sasl_oauthbearer_https_cafile is None
    assert config.security.oauth.sasl_oauthbearer_scope == "x"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (f'ssl.truststore.location="/{SECRET}.jks"', "read from PEM alone"),
        (f'ssl.truststore.type=JKS ssl.truststore.location="/{SECRET}"', "read from PEM alone"),
        (f'ssl.keystore.location="/{SECRET}"', "options that kohort does not know"),
    ],
)
def test_stores_of_java_for_the_token_endpoint_are_refused(given: str, says: str) -> None:
    with pytest.raises(InvalidOptionError, match=says) as raised:
        read(f"{CLIENT} {given};", "OAUTHBEARER", **ENDPOINT)
    assert not leaked(SECRET, error_text(raised.value))
