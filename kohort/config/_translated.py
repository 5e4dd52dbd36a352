"""Dotted names that set several options, such as sasl.jaas.config.

A class name only selects an entry of a table here. No class is loaded, and no text is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from kohort.config import _msk
from kohort.config._jaas import JaasEntry, parse_jaas
from kohort.config.options._secret import Concealed, Secret, conceal, without_frames
from kohort.config.security._oauth import AZURE_ENDPOINT, CLIENT_CREDENTIALS, JWT_BEARER
from kohort.config.security._sasl import msk_region_of
from kohort.errors import ConfigurationError, InvalidOptionError, UnsupportedOptionError
from kohort.logs import get_logger

logger = get_logger("kohort.config")

JAAS = "sasl.jaas.config"
_QUERY = "query="
_MSK = "use sasl.mechanism=AWS_MSK_IAM without sasl.jaas.config, or the module IAMLoginModule"
_RETRIEVERS = {
    "DefaultJwtRetriever": None,
    "ClientCredentialsJwtRetriever": CLIENT_CREDENTIALS,
    "JwtBearerJwtRetriever": JWT_BEARER,
    "FileJwtRetriever": None,
}
_HANDLERS = {"OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler"}
_DEPRECATED = {
    "clientId": "sasl_oauthbearer_client_id",
    "clientSecret": "sasl_oauthbearer_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
_KERBEROS = {
    "principal": "sasl_kerberos_principal",
    "serviceName": "sasl_kerberos_service_name",
    "keyTab": "sasl_kerberos_keytab",
    "ticketCache": "sasl_kerberos_ccache",
}
_KERBEROS_IGNORED = {
    "useKeyTab",
    "useTicketCache",
    "storeKey",
    "renewTGT",
    "doNotPrompt",
    "refreshKrb5Config",
    "isInitiator",
    "debug",
}
_ENDPOINT_CAS = {
    "ssl.truststore.location": "sasl_oauthbearer_https_cafile",
    "ssl.truststore.certificates": "sasl_oauthbearer_https_cadata",
}
_ENDPOINT_IGNORED = {"ssl.protocol", "ssl.truststore.password"}
"""Java's examples have ssl.protocol=SSL. A PEM file has no password."""
_MAX_QUEUE_KIB = 2_097_151
_CLAIM_PREFIXES = {
    "unsecuredLoginStringClaim_": "text",
    "unsecuredLoginNumberClaim_": "number",
    "unsecuredLoginListClaim_": "list",
}

TRANSLATED: dict[str, str] = {
    JAAS: "One entry of a JAAS file: Plain-, Scram-, OAuthBearer- or Krb5LoginModule, or Amazon "
    "MSK's IAMLoginModule.",
    "queued.max.messages.kbytes": "`buffer_memory` in KiB, at least `fetch.max.bytes`.",
    "sasl.login.callback.handler.class": "Kafka's OAuthBearerLoginCallbackHandler or "
    "OAuthBearerUnsecuredLoginCallbackHandler, which change nothing. Others are refused.",
    "sasl.oauthbearer.jwt.retriever.class": "One of Kafka's, by its name; it chooses the grant.",
    "sasl.oauthbearer.method": "`default` or `oidc`; it changes nothing.",
    "sasl.oauthbearer.config": "Claims of unsecured tokens, the text that `oauth_cb` gets, or "
    "`query=` with the query of `azure_imds`.",
    "oauth_cb": "A callable (config) that returns (token, expiry, ...), as in confluent-kafka. Or "
    "an object with `token()`.",
}
"""Meaning of each of these dotted names."""


class GivenProperties:
    """Values by keyword, with the dotted name of each."""

    __slots__ = ("names", "properties", "values")

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.properties = properties
        self.values: dict[str, Any] = {}
        self.names: dict[str, str] = {}

    def set(self, keyword: str, value: Any, name: str) -> None:
        """Set an option. Raise InvalidOptionError if another name gave it another value."""
        if keyword in self.values and self.values[keyword] != value:
            raise InvalidOptionError(f"{name}: {self.names[keyword]} gives {keyword} another value")
        self.values[keyword] = value
        self.names[keyword] = name


def translate(
    properties: Mapping[str, Any], given: Mapping[str, str]
) -> GivenProperties | ConfigurationError:
    """Return the options that these properties set, or the error to raise.

    ``given`` has the dotted names of the options that other properties set. The error is without
    a traceback, because parts of the values are local variables here.
    """
    try:
        return _translate(properties, given)
    except ConfigurationError as error:
        return without_frames(error)


def _translate(properties: Mapping[str, Any], given: Mapping[str, str]) -> GivenProperties:
    found = GivenProperties(properties)
    if (jaas := properties.get(JAAS)) is not None:
        _read_jaas(jaas, given, found)
    if (value := properties.get("sasl.login.callback.handler.class")) is not None:
        _check_handler(_text(value))
    if (value := properties.get("sasl.oauthbearer.jwt.retriever.class")) is not None:
        _read_retriever(_text(value), found)
    if (value := properties.get("sasl.oauthbearer.method")) is not None:
        if _text(value).lower() not in ("default", "oidc"):
            raise InvalidOptionError("sasl.oauthbearer.method: expected default or oidc")
    if (value := properties.get("queued.max.messages.kbytes")) is not None:
        _read_queue(value, properties, found)
    config = properties.get("sasl.oauthbearer.config")
    callback = properties.get("oauth_cb")
    if callable(getattr(callback, "token", None)):
        found.set("sasl_oauth_token_provider", callback, "oauth_cb")
    elif callback is not None:
        if not callable(callback):
            raise InvalidOptionError(
                "oauth_cb must be a callable (config), or an object with token()"
            )
        provider = OAuthCallback(callback, Secret("") if config is None else conceal(config))
        found.set("sasl_oauth_token_provider", provider, "oauth_cb")
    elif config is not None:
        _read_unsecured(conceal(config), found)
    return found


def _text(value: Any) -> str:
    return value.reveal().strip() if isinstance(value, Secret) else str(value).strip()


def _read_queue(value: Any, properties: Mapping[str, Any], found: GivenProperties) -> None:
    """Read the limit of librdkafka's queue, which a response may exceed."""
    name = "queued.max.messages.kbytes"
    text = _text(value)
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_QUEUE_KIB:
        raise InvalidOptionError(f"{name}: expected an int from 1 to {_MAX_QUEUE_KIB}")
    found.set("buffer_memory", max(int(text) * 1024, properties["fetch.max.bytes"]), name)


def _class_name(text: str) -> str:
    return text.rpartition(".")[2]


def _check_handler(text: str) -> None:
    known = not text or _class_name(text) in _HANDLERS
    msk = _class_name(text).startswith("IAM")
    del text
    if not known:
        raise UnsupportedOptionError(
            "sasl.login.callback.handler.class is not supported with this class: "
            + (_MSK if msk else "kohort loads no classes. Give a sasl_oauth_token_provider")
        )


def _read_retriever(text: str, found: GivenProperties) -> None:
    name = _class_name(text)
    known = name in _RETRIEVERS
    grant = _RETRIEVERS.get(name)
    del text, name
    if not known:
        raise UnsupportedOptionError(
            "sasl.oauthbearer.jwt.retriever.class is not supported with this class: kohort loads "
            "no classes. Give a sasl_oauth_token_provider"
        )
    if grant is not None:
        found.set("sasl_oauthbearer_grant_type", grant, "sasl.oauthbearer.jwt.retriever.class")


def _read_jaas(value: Any, given: Mapping[str, str], found: GivenProperties) -> None:
    secret = conceal(value)
    del value
    if not isinstance(secret, Secret):
        raise InvalidOptionError(f"{JAAS}: expected a str or Secret")
    entry = parse_jaas(secret)
    if isinstance(entry, str):
        raise InvalidOptionError(f"{JAAS}: {entry}")
    read = _MODULES.get(_class_name(entry.module))
    if read is None:
        _refuse_module(entry.module)
    read(entry, given, found)


def _refuse_module(module: str) -> NoReturn:
    # In a malformed text the name of the module may be a password.
    name = _class_name(module)
    is_class = name.endswith("LoginModule") and name.isalpha() and name.isascii()
    shown = name if is_class else "this login module"
    del module, name
    known = ", ".join(_MODULES)
    raise UnsupportedOptionError(f"{JAAS} is not supported with {shown}: use one of {known}")


def _read_password(entry: JaasEntry, given: Mapping[str, str], found: GivenProperties) -> None:
    """Read the options of PlainLoginModule and ScramLoginModule."""
    _check_keys(entry, {"username", "password", "tokenauth", "serviceName"})
    if "username" in entry.options:
        found.set("sasl_plain_username", entry.options["username"].reveal(), JAAS)
    if "password" in entry.options:
        found.set("sasl_plain_password", entry.options["password"], JAAS)
    if _flag(entry, "tokenauth"):
        found.set("sasl_delegation_token", True, JAAS)


def _read_oauth(entry: JaasEntry, given: Mapping[str, str], found: GivenProperties) -> None:
    """Read the options of OAuthBearerLoginModule."""
    extensions: dict[str, str] = {}
    claims: dict[str, Any] = {}
    unknown = not _read_endpoint_cas(entry, found)
    for key, secret in entry.options.items():
        if key.startswith("ssl."):
            continue
        if key in _DEPRECATED:
            keyword = _DEPRECATED[key]
            if keyword in given:
                logger.warning(
                    "%s: %s is deprecated and ignored, because %s is given",
                    JAAS,
                    key,
                    given[keyword],
                )
            else:
                is_secret = key == "clientSecret"
                found.set(keyword, secret if is_secret else secret.reveal(), JAAS)
        elif key.startswith(("extension_", "unsecuredLoginExtension_")):
            extensions[key.partition("_")[2]] = secret.reveal()
        elif key == "unsecuredLoginPrincipalClaimName":
            found.set("sasl_oauthbearer_sub_claim_name", secret.reveal(), JAAS)
        elif key == "unsecuredLoginLifetimeSeconds":
            found.set("sasl_oauthbearer_unsecured_lifetime_seconds", _whole(secret, key), JAAS)
        elif key == "unsecuredLoginScopeClaimName":
            continue
        elif (prefix := key.partition("_")[0] + "_") in _CLAIM_PREFIXES:
            claims[key.removeprefix(prefix)] = _claim(_CLAIM_PREFIXES[prefix], secret)
        else:
            unknown = True
    if unknown:
        raise InvalidOptionError(
            f"{JAAS}: OAuthBearerLoginModule has options that kohort does not know. It knows "
            "clientId, clientSecret, scope, extension_NAME and unsecuredLogin...Claim_NAME. For "
            "the token endpoint it knows ssl.truststore.location, .certificates and .type"
        )
    if extensions:
        found.set("sasl_oauthbearer_extensions", tuple(extensions.items()), JAAS)
    if claims:
        found.set("sasl_oauthbearer_unsecured_claims", tuple(claims.items()), JAAS)


def _read_endpoint_cas(entry: JaasEntry, found: GivenProperties) -> bool:
    """Read the TLS options, which Java uses for the token endpoint.

    Return False if some of them are not known.
    """
    given = {key for key in entry.options if key.startswith("ssl.")}
    stores = given & _ENDPOINT_CAS.keys()
    kind = "ssl.truststore.type"
    if stores and (kind not in given or entry.options[kind].reveal().upper() != "PEM"):
        raise InvalidOptionError(
            f"{JAAS}: the CAs of the token endpoint are read from PEM alone. Convert the store, "
            f"and add {kind}=PEM"
        )
    for key in stores:
        found.set(_ENDPOINT_CAS[key], entry.options[key].reveal(), JAAS)
    return given <= {*_ENDPOINT_CAS, *_ENDPOINT_IGNORED, kind}


def _claim(kind: str, secret: Secret) -> Any:
    """Return the value of a claim. The first character of a list is its separator."""
    text = secret.reveal()
    if kind == "list":
        return tuple(part for part in text[1:].split(text[0]) if part) if text else ()
    return _number(secret) if kind == "number" else text


def _number(secret: Secret) -> float:
    number: float | None = None
    try:
        number = float(secret.reveal())
    except ValueError:
        pass  # the text of the error has the value
    if number is None:
        raise InvalidOptionError(f"{JAAS}: an unsecuredLoginNumberClaim is not a number")
    return int(number) if number.is_integer() else number


def _whole(secret: Secret, key: str) -> int:
    if not secret.reveal().isdecimal():
        raise InvalidOptionError(f"{JAAS}: {key} is not a whole number")
    return int(secret.reveal())


def _read_kerberos(entry: JaasEntry, given: Mapping[str, str], found: GivenProperties) -> None:
    """Read the options of Krb5LoginModule."""
    _check_keys(entry, {*_KERBEROS, *_KERBEROS_IGNORED})
    for key, keyword in _KERBEROS.items():
        if key not in entry.options:
            continue
        if key == "keyTab" and not _flag(entry, "useKeyTab"):
            continue  # Java reads it with useKeyTab=true only
        if key == "ticketCache" and not _flag(entry, "useTicketCache"):
            continue
        found.set(keyword, entry.options[key].reveal(), JAAS)


def _read_msk(entry: JaasEntry, given: Mapping[str, str], found: GivenProperties) -> None:
    """Read the options of Amazon MSK's IAMLoginModule."""
    if not _msk.is_installed():
        raise UnsupportedOptionError(
            f"{JAAS} is not supported with {_msk.MODULE} unless the package "
            "aws-msk-iam-sasl-signer-python is installed: install it"
        )
    _check_keys(entry, set(_msk.OPTIONS))
    region = msk_region_of(found.properties.get("bootstrap.servers", ()))
    if region is None:
        raise InvalidOptionError(
            f"{JAAS}: {_msk.MODULE} needs a region, and no address in bootstrap.servers has one. "
            "Set the environment variable AWS_REGION"
        )
    found.set("sasl_mechanism", "OAUTHBEARER", JAAS)
    found.set("sasl_oauth_token_provider", _msk.MskTokens(region, entry.options), JAAS)


def _flag(entry: JaasEntry, key: str) -> bool:
    return key in entry.options and entry.options[key].reveal().lower() == "true"


def _check_keys(entry: JaasEntry, known: set[str]) -> None:
    if not entry.options.keys() <= known:
        # The name is left out: with misplaced quotes it may be a part of a password.
        raise InvalidOptionError(
            f"{JAAS}: {_class_name(entry.module)} has options that kohort does not know. It knows "
            + ", ".join(sorted(known))
        )


def _read_unsecured(config: Secret | Concealed, found: GivenProperties) -> None:
    """Read librdkafka's claims of unsecured tokens, such as ``principal=alice scope=a,b``.

    Or its query of Azure's metadata service, such as ``query=api-version=...&resource=...``.
    """
    name = "sasl.oauthbearer.config"
    if isinstance(config, Concealed):
        raise InvalidOptionError(f"{name}: expected a str")
    if config.reveal().startswith(_QUERY):
        url = f"{AZURE_ENDPOINT}?{config.reveal().removeprefix(_QUERY)}"
        found.set("sasl_oauthbearer_token_endpoint_url", url, name)
        return
    pairs = [part.partition("=") for part in config.reveal().split()]
    read = {key: value for key, equals, value in pairs if equals}
    wrong = len(read) != len(pairs)
    extensions = {key[10:]: read.pop(key) for key in list(read) if key.startswith("extension_")}
    subject = read.pop("principalClaimName", "sub")
    scope = read.pop("scopeClaimName", "scope")
    claims: dict[str, Any] = {}
    if "principal" in read:
        claims[subject] = read.pop("principal")
    if "scope" in read:
        claims[scope] = tuple(read.pop("scope").split(","))
    lifetime = read.pop("lifeSeconds", "3600")
    if wrong or read or not lifetime.isdecimal():
        del pairs, read, claims, extensions, subject, scope, lifetime
        raise InvalidOptionError(
            f"{name}: expected principal=, principalClaimName=, scope=, scopeClaimName=, "
            "lifeSeconds= and extension_NAME= with spaces between them"
        )
    found.set("sasl_oauthbearer_sub_claim_name", subject, name)
    found.set("sasl_oauthbearer_unsecured_claims", tuple(claims.items()), name)
    found.set("sasl_oauthbearer_unsecured_lifetime_seconds", int(lifetime), name)
    if extensions:
        found.set("sasl_oauthbearer_extensions", tuple(extensions.items()), name)


class OAuthCallback:
    """A token provider made of confluent-kafka's ``oauth_cb``."""

    __slots__ = ("_callback", "_config", "_extensions")

    def __init__(self, callback: Callable[[str], Any], config: Secret) -> None:
        self._callback = callback
        self._config = config
        self._extensions: dict[str, str] = {}

    def token(self) -> tuple[str, float]:
        """Return the token and its expiry in seconds since 1970."""
        return self._read(*self._callback(self._config.reveal()))

    def _read(
        self, token: Any, expiry: float, principal: Any = None, extensions: Any = None
    ) -> tuple[str, float]:
        """Return token and expiry. The principal is not sent, as in librdkafka."""
        # Tracebacks show local variables, so none has the token where a call can fail.
        token = Secret(token)
        self._extensions = dict(extensions or {})
        return token.reveal(), expiry

    def extensions(self) -> dict[str, str]:
        """Return the extensions that came with the latest token."""
        return self._extensions


_MODULES: dict[str, Callable[[JaasEntry, Mapping[str, str], GivenProperties], None]] = {
    "PlainLoginModule": _read_password,
    "ScramLoginModule": _read_password,
    "OAuthBearerLoginModule": _read_oauth,
    "Krb5LoginModule": _read_kerberos,
    _msk.MODULE: _read_msk,
}
