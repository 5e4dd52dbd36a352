"""The source of OAuth tokens that the options describe."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.config import Secret
from kohort.errors import InvalidOptionError, OAuthTokenError
from kohort.security._secrets import utf8_of
from kohort.security.oauth._metadata import GOOGLE_ENDPOINT, GoogleTokens, MachineIdentity
from kohort.security.oauth._oidc import (
    Assertion,
    AssertionGrant,
    ClientCredentials,
    TokenEndpoint,
    TokenFile,
    UnsecuredTokens,
    file_secret,
    read_file,
)
from kohort.security.oauth._tokens import Clock, Token, TokenSource, provider_source

if TYPE_CHECKING:
    from kohort.config import AssertionConfig, OAuthConfig, SecurityConfig

RETRY_SECONDS = 10.0
"""Seconds for which one login retries an unavailable token endpoint."""


def token_source(config: SecurityConfig, clock: Clock | None = None) -> TokenSource:
    """Return the source of tokens. Raises InvalidOptionError where the options name none.

    ``clock`` gives seconds since the epoch, None is the clock of the system.
    """
    clock = clock or time.time
    oauth = config.oauth
    extensions = dict(oauth.sasl_oauthbearer_extensions)
    subject = oauth.sasl_oauthbearer_sub_claim_name
    if (provider := config.sasl.sasl_oauth_token_provider) is not None:
        return provider_source(provider, extensions, subject=subject, clock=clock)
    if oauth.sasl_oauthbearer_token_file is not None:
        path = Path(oauth.sasl_oauthbearer_token_file)
        file = TokenFile(path, extensions, clock=clock)
        name = "the token file"
        return TokenSource(file, keep=False, subject=subject, name=name, clock=clock)
    if config.unsecured.sasl_oauthbearer_unsecured:
        claims = dict(config.unsecured.sasl_oauthbearer_unsecured_claims)
        life = config.unsecured.sasl_oauthbearer_unsecured_lifetime_seconds
        made = UnsecuredTokens(claims, life, extensions, clock=clock)
        return TokenSource(made, subject=subject, clock=clock)
    kind = oauth.sasl_oauthbearer_metadata_authentication_type
    url = oauth.sasl_oauthbearer_token_endpoint_url or (
        GOOGLE_ENDPOINT if kind == "google" else None
    )
    if url is None:
        raise InvalidOptionError(
            "OAUTHBEARER needs sasl_oauth_token_provider, sasl_oauthbearer_token_endpoint_url "
            "or sasl_oauthbearer_token_file"
        )
    context = _context_of(oauth)
    grant = grant_of(config, clock) if kind == "none" else MachineIdentity(kind)
    endpoint = TokenEndpoint(url, grant, context, extensions, clock=clock)
    fetch: Callable[[], Awaitable[Token]] = endpoint
    if kind == "google":
        fetch = GoogleTokens(endpoint, url, context, extensions, clock=clock)
    name = f"the token endpoint {url}"
    return TokenSource(fetch, retry_seconds=RETRY_SECONDS, subject=subject, name=name, clock=clock)


def grant_of(
    config: SecurityConfig, clock: Clock = time.time
) -> ClientCredentials | AssertionGrant:
    """Return the grant of the options. Raises InvalidOptionError."""
    oauth = config.oauth
    scope = oauth.sasl_oauthbearer_scope
    if oauth.sasl_oauthbearer_grant_type != "client_credentials":
        return AssertionGrant(_assertion_of(config.assertion, clock), scope)
    client_id = oauth.sasl_oauthbearer_client_id
    if client_id is None or oauth.sasl_oauthbearer_client_secret is None:
        raise InvalidOptionError(
            "the grant client_credentials needs sasl_oauthbearer_client_id and "
            "sasl_oauthbearer_client_secret"
        )
    return ClientCredentials(
        client_id,
        oauth.sasl_oauthbearer_client_secret,
        scope,
        urlencode=oauth.sasl_oauthbearer_header_urlencode,
    )


def _assertion_of(config: AssertionConfig, clock: Clock) -> Callable[[], Secret]:
    if config.sasl_oauthbearer_assertion_file is not None:
        path = Path(config.sasl_oauthbearer_assertion_file)
        return lambda: file_secret(path, "assertion file")
    made = Assertion(config, _key_of(config), clock=clock)
    # A key or template that does not load raises in the constructor of the consumer.
    try:
        made()
        return made
    except (InvalidOptionError, OAuthTokenError) as error:
        fault = InvalidOptionError(str(error))
    raise fault


def _key_of(config: AssertionConfig) -> Callable[[], bytes]:
    """Return a function that gives the private key as PEM."""
    pem = config.sasl_oauthbearer_assertion_private_key_pem
    if pem is not None:
        return lambda: utf8_of(pem)
    if (name := config.sasl_oauthbearer_assertion_private_key_file) is None:
        raise InvalidOptionError(
            "the grant jwt-bearer needs sasl_oauthbearer_assertion_private_key_file, "
            "sasl_oauthbearer_assertion_private_key_pem or sasl_oauthbearer_assertion_file"
        )
    path = Path(name)
    return lambda: read_file(path, "private key file")


def _context_of(config: OAuthConfig) -> Callable[[], ssl.SSLContext]:
    """Return a function that makes the TLS context of a call. InvalidOptionError."""
    path = config.sasl_oauthbearer_https_cafile
    data = config.sasl_oauthbearer_https_cadata

    def context() -> ssl.SSLContext:
        is_folder = path is not None and os.path.isdir(path)
        made = ssl.create_default_context(
            cafile=None if is_folder else path, capath=path if is_folder else None, cadata=data
        )
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        return made

    if path is not None or data is not None:
        try:
            context()
        except (OSError, ValueError) as error:
            name = "https_cafile" if path is not None else "https_cadata"
            raise InvalidOptionError(
                f"sasl_oauthbearer_{name} does not load: {type(error).__name__}. "
                "Give CA certificates in PEM form"
            ) from None
    return context
