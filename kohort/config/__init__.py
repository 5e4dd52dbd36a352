"""Every option of a consumer: its name, type, default, check and meaning, in one place.

A section holds the options of one package, and each option is a field of its section. Sections
are frozen, and their constructor checks every option.
"""
# Public are ConsumerConfig and Option. All other names are private.

from __future__ import annotations

from kohort.config._client import CLOSE_TIMEOUT, ClientConfig
from kohort.config._config import (
    ADMIN_OPTIONS,
    OPTIONS,
    SHARE_OPTIONS,
    UNSUPPORTED,
    ConsumerConfig,
    conceal_properties,
    conceal_secrets,
    in_dotted_names,
)
from kohort.config._deserializers import Deserialize
from kohort.config._fetch import FetchConfig, reset_duration_ms
from kohort.config._group import GroupConfig
from kohort.config._version import VERSION
from kohort.config.options._option import Option
from kohort.config.options._secret import Secret, without_frames
from kohort.config.options._url import Url
from kohort.config.security._oauth import AssertionConfig, OAuthConfig, UnsecuredConfig
from kohort.config.security._proxy import ProxyConfig, ProxyUrl
from kohort.config.security._sasl import SaslConfig, msk_region_of
from kohort.config.security._security import SecurityConfig
from kohort.config.security._tls import StoreConfig, TlsConfig

__all__ = [
    "ADMIN_OPTIONS",
    "CLOSE_TIMEOUT",
    "OPTIONS",
    "SHARE_OPTIONS",
    "UNSUPPORTED",
    "VERSION",
    "AssertionConfig",
    "ClientConfig",
    "ConsumerConfig",
    "Deserialize",
    "FetchConfig",
    "GroupConfig",
    "OAuthConfig",
    "Option",
    "ProxyConfig",
    "ProxyUrl",
    "SaslConfig",
    "Secret",
    "SecurityConfig",
    "StoreConfig",
    "TlsConfig",
    "UnsecuredConfig",
    "Url",
    "conceal_properties",
    "conceal_secrets",
    "in_dotted_names",
    "msk_region_of",
    "reset_duration_ms",
    "without_frames",
]
