"""Security of the in-process cluster: logins, certificates and rights of clients."""

from __future__ import annotations

from kohort.broker.security._acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    member_of,
)
from kohort.broker.security._authorizer import Authorizer, all_operations
from kohort.broker.security._certificates import KINDS, CertificateFiles, ClientCertificate
from kohort.broker.security._credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_HASHES,
    SCRAM_NUMBERS,
    ScramCredential,
)
from kohort.broker.security._delegation import EXPIRY_MS as TOKEN_EXPIRY_MS
from kohort.broker.security._delegation import DelegationToken
from kohort.broker.security._listeners import MECHANISMS, Listener, TokenCheck
from kohort.broker.security._mechanism import LoginBrokenError
from kohort.broker.security._sasl import ANONYMOUS, ClientLogin, Phase, Step
from kohort.broker.security._settings import PLAINTEXT_ONLY, Authorization, Security
from kohort.broker.security._state import SecurityState, TlsFault
from kohort.broker.security._tokens import TokenKey, check_claims, unsecured_token

__all__ = [
    "ANONYMOUS",
    "CLUSTER_NAME",
    "KINDS",
    "MAX_ITERATIONS",
    "MECHANISMS",
    "MIN_ITERATIONS",
    "PLAINTEXT_ONLY",
    "SCRAM_HASHES",
    "SCRAM_NUMBERS",
    "TOKEN_EXPIRY_MS",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Authorization",
    "Authorizer",
    "CertificateFiles",
    "ClientCertificate",
    "ClientLogin",
    "DelegationToken",
    "Listener",
    "LoginBrokenError",
    "PatternType",
    "Phase",
    "ResourceType",
    "ScramCredential",
    "Security",
    "SecurityState",
    "Step",
    "TlsFault",
    "TokenCheck",
    "TokenKey",
    "all_operations",
    "check_claims",
    "member_of",
    "unsecured_token",
]
