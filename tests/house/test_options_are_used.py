"""An accepted option has an effect: a part of the client reads it."""

from __future__ import annotations

import re

from kohort.config import OPTIONS
from tests.house._source import modules

# Read by the configuration, under another name.
READ_AS = {
    "enable_auto_commit": "auto_commit",
    "key_deserializer": "deserialize_key",
    "value_deserializer": "deserialize_value",
    "proxy_url": "proxy.url",
    "socks5_proxy": "proxy.url",
}
# Read only by checks of the configuration.
READ_BY_CONFIG = {
    "ssl_keystore_type",
    "ssl_truststore_type",
    "sasl_oauthbearer_allow_http",
    "sasl_oauthbearer_allowed_urls",
}


def test_every_option_is_read_by_some_part_of_the_client() -> None:
    client = "\n".join(
        module.path.read_text(encoding="utf-8")
        for module in modules()
        if module.part not in ("broker", "config", "testing", "cli")
    )
    unread = [
        name
        for name in OPTIONS.keys() - READ_BY_CONFIG
        if not re.search(rf"\.{READ_AS.get(name, name)}\b", client)
    ]
    assert not unread, f"accepted and ignored: {', '.join(unread)}"
