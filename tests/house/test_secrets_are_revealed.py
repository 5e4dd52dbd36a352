"""Secrets are revealed in few modules, which are listed here."""

from __future__ import annotations

import ast

from tests.house._source import modules

REVEALING = {
    "kohort.config._jaas": "parses the text",
    "kohort.config._msk": "gives options of a login module to the signer of a token",
    "kohort.config._names": "looks for references that nothing resolves",
    "kohort.config._translated": "reads options of login modules",
    "kohort.config.options._secret": "defines it",
    "kohort.config.options._url": "checks the form of URLs",
    "kohort.config.security._proxy": "checks the form of URLs of proxies",
    "kohort.config.security._security_checks": "looks for a character that PLAIN cannot send",
    "kohort.config.security._security_types": "checks the form of keys and passwords",
    "kohort.security._secrets": "gives credentials to logins",
    "kohort.security.tls._context": "loads keys",
    "kohort.security.tls._pem": "loads keys",
    "kohort.transport.network._proxy": "logs in at proxies",
}


def test_secrets_are_revealed_in_few_modules_only() -> None:
    revealing = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and node.attr in ("reveal", "reveal_bytes")
    }
    assert revealing <= REVEALING.keys()
