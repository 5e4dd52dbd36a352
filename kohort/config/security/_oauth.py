"""Sections of options for the tokens of OAUTHBEARER."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final

from kohort.config.options._option import SecuritySection, option, section
from kohort.config.options._option_types import Boolean, Integer
from kohort.config.options._secret import Secret
from kohort.config.options._url import Endpoint, Endpoints, Url
from kohort.config.security._security_types import (
    SYSTEM_CA,
    CertificateList,
    Claims,
    Extensions,
    FilePath,
    KeyText,
    SecretText,
    SingleLine,
    SingleWord,
    UpperOneOf,
)

CLIENT_CREDENTIALS: Final = "client_credentials"
AZURE: Final = "azure_imds"
METADATA_HOSTS: Final = ("169.254.169.254", "metadata.google.internal")
"""Hosts that only a machine of a cloud reaches, and only without TLS."""
AZURE_ENDPOINT: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@section
class OAuthConfig(SecuritySection):
    """Options of tokens from a token endpoint (OIDC) or a file."""

    sasl_oauthbearer_token_endpoint_url: Url | None = field(
        default=None,
        metadata=option(Endpoint(), "Token endpoint of the identity provider."),
    )
    sasl_oauthbearer_metadata_authentication_type: str = field(
        default="none",
        metadata=option(
            SingleWord("none", AZURE, "google"),
            "Log in as the identity of this machine: azure_imds in Azure, google in Google Cloud.",
        ),
    )
    sasl_oauthbearer_client_id: str | None = field(
        default=None,
        metadata=option(
            SingleLine(),
            "Client id at the token endpoint.",
            properties=("sasl.oauthbearer.client.credentials.client.id",),
            also=("sasl.oauthbearer.client.id",),
        ),
    )
    sasl_oauthbearer_client_secret: Secret | None = field(
        default=None,
        metadata=option(
            SecretText(),
            "The secret of that client.",
            properties=("sasl.oauthbearer.client.credentials.client.secret",),
            also=("sasl.oauthbearer.client.secret",),
        ),
    )
    sasl_oauthbearer_scope: str | None = field(
        default=None, metadata=option(SingleLine(), "Requested scopes, with spaces between them.")
    )
    sasl_oauthbearer_grant_type: str = field(
        default=CLIENT_CREDENTIALS,
        metadata=option(
            SingleWord(CLIENT_CREDENTIALS, JWT_BEARER, aliases={"jwt-bearer": JWT_BEARER}),
            "Grant type: the client identifies itself by its secret or an assertion of RFC 7523.",
        ),
    )
    sasl_oauthbearer_header_urlencode: bool = field(
        default=False,
        metadata=option(
            Boolean(), "Encode client id and secret for URLs before they go into the HTTP header."
        ),
    )
    sasl_oauthbearer_https_cafile: str | None = field(
        default=None,
        metadata=option(
            FilePath(SYSTEM_CA),
            "PEM file, or folder, of the CAs of the token endpoint. None means those of the "
            "system.",
            properties=("https.ca.location",),
        ),
    )
    sasl_oauthbearer_https_cadata: str | bytes | None = field(
        default=None,
        metadata=option(
            CertificateList(der=True),
            "The CA certificates themselves, in place of sasl_oauthbearer_https_cafile.",
            properties=("https.ca.pem",),
        ),
    )
    sasl_oauthbearer_allow_http: bool = field(
        default=False,
        metadata=option(
            Boolean(),
            "Allow an http:// token endpoint on this machine (localhost, 127.0.0.1, ::1).",
        ),
    )
    sasl_oauthbearer_allowed_urls: tuple[Url, ...] = field(
        default=(),
        metadata=option(
            Endpoints(), "Token endpoints that may be used. Empty: any.", shown_default="()"
        ),
    )
    sasl_oauthbearer_token_file: str | None = field(
        default=None,
        metadata=option(FilePath(), "File of a token, read at each login."),
    )
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...] = field(
        default=(),
        metadata=option(Extensions(), "SASL extensions, sent with each token."),
    )
    sasl_oauthbearer_sub_claim_name: str = field(
        default="sub",
        metadata=option(
            SingleLine(nullable=False), "The claim of a token that names the principal."
        ),
    )


@section
class UnsecuredConfig(SecuritySection):
    """Options of tokens without a signature."""

    sasl_oauthbearer_unsecured: bool = field(
        default=False,
        metadata=option(
            Boolean(),
            "Send tokens without a signature, made from sasl_oauthbearer_unsecured_claims: for "
            "tests only.",
            also=("enable.sasl.oauthbearer.unsecure.jwt",),
        ),
    )
    sasl_oauthbearer_unsecured_claims: tuple[tuple[str, Any], ...] = field(
        default=(),
        metadata=option(
            Claims(),
            "Claims of unsecured tokens, with the principal. iat and exp are added.",
            properties=(),
        ),
    )
    sasl_oauthbearer_unsecured_lifetime_seconds: int = field(
        default=3_600,
        metadata=option(Integer(1), "Lifetime of an unsecured token.", unit="s"),
    )


@section
class AssertionConfig(SecuritySection):
    """Options of the assertion that the grant jwt-bearer sends."""

    sasl_oauthbearer_assertion_algorithm: str = field(
        default="RS256",
        metadata=option(
            UpperOneOf("RS256", "ES256"), "Algorithm of the signature (needs the extra crypto)."
        ),
    )
    sasl_oauthbearer_assertion_claim_aud: str | None = field(
        default=None, metadata=option(SingleLine(), "The claim aud of the assertion.")
    )
    sasl_oauthbearer_assertion_claim_iss: str | None = field(
        default=None, metadata=option(SingleLine(), "The claim iss of the assertion.")
    )
    sasl_oauthbearer_assertion_claim_sub: str | None = field(
        default=None, metadata=option(SingleLine(), "The claim sub of the assertion.")
    )
    sasl_oauthbearer_assertion_claim_exp_seconds: int = field(
        default=300,
        metadata=option(Integer(1, 86_400), "Lifetime of an assertion.", unit="s"),
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = field(
        default=60,
        metadata=option(
            Integer(0, 86_400),
            "Time before its creation from which an assertion is valid.",
            unit="s",
        ),
    )
    sasl_oauthbearer_assertion_claim_jti_include: bool = field(
        default=False, metadata=option(Boolean(), "Add a random claim jti to the assertion.")
    )
    sasl_oauthbearer_assertion_private_key_file: str | None = field(
        default=None, metadata=option(FilePath(), "PEM file of the key that signs assertions.")
    )
    sasl_oauthbearer_assertion_private_key_pem: Secret | None = field(
        default=None, metadata=option(KeyText(), "The key itself, in place of its file.")
    )
    sasl_oauthbearer_assertion_private_key_passphrase: Secret | None = field(
        default=None, metadata=option(SecretText(), "Password of that key.")
    )
    sasl_oauthbearer_assertion_file: str | None = field(
        default=None,
        metadata=option(FilePath(), "File of a finished assertion, read for each token."),
    )
    sasl_oauthbearer_assertion_template_file: str | None = field(
        default=None,
        metadata=option(
            FilePath(),
            'JSON file with further parts of the assertion, as `{"header": {}, "payload": {}}`.',
            also=("sasl.oauthbearer.assertion.jwt.template.file",),
        ),
    )
