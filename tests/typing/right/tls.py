"""TLS takes paths, text, secrets and functions."""

from __future__ import annotations

import ssl
from pathlib import Path

from kohort import KafkaConsumer, Secret, create_ssl_context

KafkaConsumer(
    "orders",
    security_protocol="SSL",
    ssl_cafile=Path("ca.pem"),
    ssl_certfile="client.pem",
    ssl_password=lambda: "secret",
    ssl_min_version=ssl.TLSVersion.TLSv1_3,
)
KafkaConsumer("orders", security_protocol="SSL", ssl_password=Secret("secret"))
KafkaConsumer("orders", security_protocol="SSL", ssl_context=create_ssl_context(cafile="ca.pem"))
