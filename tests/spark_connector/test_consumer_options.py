"""Options of the consumer in a query: advice that can be followed, and token providers."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from kohort.config._unsupported import KEYWORDS
from kohort.config._unsupported import PROPERTIES as UNSUPPORTED
from kohort.errors import ConfigurationError, InvalidOptionError, UnknownOptionError
from kohort.spark_connector._consumers import close_idle, make_consumer
from kohort.spark_connector.options._consumer_options import WITHOUT_EFFECT
from kohort.spark_connector.options._options import SourceOptions
from kohort.testing import Cluster, Security
from tests.spark_connector.reading import options, read_batch, values

GIVEN = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"}
PROVIDERS = "tests.spark_connector.token_providers"
NAMES = [name for each in (*KEYWORDS, *UNSUPPORTED) for name in each.properties]
OF_PROGRAMS = re.compile(r"timeout_ms|metrics\(\)|poll\(|commit_async|sasl_oauth|ssl_context")


def given(**properties: str) -> None:
    """Check options of the consumer as the source does."""
    named = {f"kafka.{name}": value for name, value in properties.items()}
    make_consumer(SourceOptions.parse(GIVEN | named, streaming=True).properties, group=True).close()


def test_no_advice_is_for_programs() -> None:
    said: dict[str, str] = {}
    for name in NAMES:
        try:
            given(**{name: "x"})
        except ConfigurationError as error:
            said[name] = str(error)
    assert len(said) > 30
    assert {name: text for name, text in said.items() if OF_PROGRAMS.search(text)} == {}
    assert {name for name, text in said.items() if "kafka." not in text} == set()


def test_options_without_effect_are_accepted_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "kohort.spark_connector"):
        given(**dict.fromkeys(WITHOUT_EFFECT, "120000"))
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == len(WITHOUT_EFFECT)
    assert any(text.startswith("option kafka.default.api.timeout.ms has no") for text in said)


def test_login_handler_of_java_is_answered_with_the_option() -> None:
    with pytest.raises(ConfigurationError, match=r"set kafka\.sasl\.oauth\.token\.provider="):
        given(**{"sasl.login.callback.handler.class": "org.example.Handler"})
    with pytest.raises(ConfigurationError, match="AWS_MSK_IAM"):
        given(**{"sasl.login.callback.handler.class": "org.example.IAMClientCallbackHandler"})
    with pytest.raises(UnknownOptionError, match=r"set kafka\.sasl\.oauth\.token\.provider="):
        given(sasl_oauth_token_provider="x")


def test_missing_pem_file_has_the_name_that_was_given(tmp_path: Path) -> None:
    chosen = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
    with pytest.raises(InvalidOptionError, match=r"ssl\.truststore\.location: there is no such"):
        given(**chosen, **{"ssl.truststore.location": str(tmp_path / "ca.pem")})


@pytest.mark.cases
@pytest.mark.parametrize("name", ["Alice", "alice", "token"])
def test_token_provider_is_named_by_its_module(name: str) -> None:
    with Cluster(topics={"orders": 1}, security=Security(["SASL_PLAINTEXT"])) as cluster:
        cluster.produce("orders", [b"first"])
        login = {
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauth.token.provider": f"{PROVIDERS}:{name}",
        }
        assert values(read_batch(options(cluster) | login)) == [b"first"]
        close_idle()


@pytest.mark.cases
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("Alice", "not of the form package.module:Name"),
        ("nosuchmodule:Alice", "ModuleNotFoundError"),
        (f"{PROVIDERS}:Bob", "AttributeError"),
        (f"{PROVIDERS}:Choosy", "TypeError"),
        (f"{PROVIDERS}:NOTHING", "no function"),
    ],
)
def test_wrong_token_provider_is_an_error(path: str, said: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"kafka\.sasl\.oauth\.token\.provider") as caught:
        given(**{"sasl.oauth.token.provider": path})
    assert said in str(caught.value)
