"""Remedies of the errors: the sections of docs/reference/errors.md and of ``kohort errors NAME``.

The docstring of a class has the cause. Only that page and that command import this module.
"""

from __future__ import annotations

from typing import Final

from kohort.types import NamedTuple


class Remedy(NamedTuple):
    """Steps after an error."""

    text: str
    page: str = ""
    """Page of docs/ with more, and the anchor there. Empty if there is none."""


_RETRIED: Final = Remedy(
    "Nothing at first: the consumer retries, and a later ``poll()`` continues. If it lasts, check "
    "the brokers and their logs. ``explain()`` shows the reason.",
    "monitoring.md",
)
_REJOINS: Final = Remedy(
    "Continue to poll: the consumer rejoins. If it happens often, compare your longest time "
    "between two polls with ``max_poll_interval_ms``.",
    "troubleshooting.md#the-group-rebalances-again-and-again",
)
_PRODUCER: Final = Remedy(
    "Correct the producer. A consumer of kohort sends no request that gets this code from Kafka. "
    "A test gets it if ``fail()`` names it.",
    "testing.md#faults",
)
_DEFECT: Final = Remedy(
    "Report it with the log of ``kohort`` at level DEBUG and the version of the broker. A proxy "
    "between client and broker can cause it as well.",
    "versioning.md#where-to-get-help",
)
_TEST_CLUSTER: Final = Remedy(
    "Correct the call. The cluster of ``kohort.testing`` raises it, and the message names the "
    "value.",
    "testing.md",
)
_ADDRESS: Final = Remedy(
    "Check that the address is the one of a Kafka listener, without a proxy for another protocol. "
    "The consumer opens a new connection and retries.",
    "poison.md#errors-without-a-policy",
)
_BAD_DATA: Final = Remedy(
    "Choose by ``on_error``: raise, skip or pause. To skip once, call "
    "``seek(error.topic_partition, error.next_offset)``.",
    "poison.md",
)
_CREDENTIALS: Final = Remedy(
    "Check the service that the message names: the identity provider, the KDC or your function. "
    "Then continue to poll: the consumer retries the login.",
    "security.md#what-the-errors-mean",
)

REMEDIES: Final[dict[str, Remedy]] = {
    # Base classes
    "KafkaError": Remedy(
        "Catch it to handle every error of kohort. If ``retriable`` is True, repeat the call after "
        "a pause. You may continue to poll after any error, and no record is lost.",
    ),
    # Options
    "ConfigurationError": Remedy(
        "Correct the options that the message names. kohort checks them before it connects.",
        "configuration.md#how-options-are-checked",
    ),
    "UnknownOptionError": Remedy(
        "Use the name that the message suggests. Dotted names such as ``group.id`` go to "
        "``from_properties()``.",
        "reference/options.md",
    ),
    "InvalidOptionError": Remedy(
        "Set a value of the type and range that the message names.", "reference/options.md"
    ),
    "UnsupportedOptionError": Remedy(
        "Remove the option, or follow the advice after the colon of the message.",
        "reference/options.md#keywords-that-are-not-supported",
    ),
    # Calls
    "IllegalStateError": Remedy(
        "Make the call that the message asks for first, such as ``subscribe()`` or "
        "``unsubscribe()``."
    ),
    "ConsumerClosedError": Remedy(
        "Create a new consumer. If another part of the program closed this one, use it only inside "
        "its ``with`` block."
    ),
    "ReentrantCallError": Remedy(
        "Set a flag in the listener, and make the call after ``poll()`` has returned. A listener "
        "may call ``commit()``, ``seek()`` and ``pause()``.",
        "listeners.md",
    ),
    "ForkedConsumerError": Remedy(
        "Create the consumer in the child process, after the fork.",
        "troubleshooting.md#the-consumer-hangs-in-a-child-process",
    ),
    "NotAssignedError": Remedy(
        "Print ``assignment()``. After ``subscribe()``, partitions arrive in a later ``poll()``: "
        "call ``seek()`` in ``on_partitions_assigned``.",
        "troubleshooting.md#seek-fails-right-after-subscribe",
    ),
    "ThreadStartError": Remedy(
        "Free threads, or raise the limit of the system or container. Then repeat the call. While "
        "the interpreter exits, no thread can start."
    ),
    "WakeupError": Remedy(
        "Leave the loop of polls and call ``close()``. If another thread interrupts for another "
        "reason, handle it and poll again."
    ),
    "KafkaTimeoutError": Remedy(
        "Repeat the call, or give it more time. The message names what did not respond. If it is "
        "the consumer thread, find the function that blocks it.",
        "troubleshooting.md#the-consumer-thread-does-not-respond",
    ),
    "OffsetsTimeoutError": Remedy(
        "Use the offsets in ``found``, and repeat the call for the other partitions."
    ),
    # Network
    "TransportError": Remedy(
        "Check network and addresses. The consumer opens a new connection, so a later ``poll()`` "
        "may succeed.",
        "troubleshooting.md#it-does-not-connect",
    ),
    "KafkaConnectionError": Remedy(
        "Check that the broker runs, and that its port is reachable from here. The consumer "
        "connects again after a pause.",
        "troubleshooting.md#it-does-not-connect",
    ),
    "NoBrokersAvailable": Remedy(
        "Check ``bootstrap_servers``, and that the brokers are up. Or continue to poll: the "
        "consumer keeps trying.",
        "troubleshooting.md#no-broker-can-be-reached",
    ),
    "ProxyConnectionError": Remedy(
        "Check host, port and scheme of ``proxy_url``, and that the proxy runs. The consumer "
        "retries.",
        "security.md#proxies",
    ),
    "ProtocolError": _ADDRESS,
    "FrameTooLargeError": Remedy(
        "If the message names ``receive_message_max_bytes``, raise that option. Otherwise check "
        "that the address is the one of a Kafka listener.",
        "poison.md#errors-without-a-policy",
    ),
    "MessageDecodeError": _ADDRESS,
    "MessageEncodeError": _DEFECT,
    "CorrelationIdError": _DEFECT,
    # Security
    "SecurityError": Remedy(
        "Correct the setting that the message names. If it lists several brokers, each line has "
        "its own cause.",
        "security.md#what-the-errors-mean",
    ),
    "TlsError": Remedy(
        "Check the TLS options that the message names, such as ``ssl_min_version`` and "
        "``ssl_ciphers``.",
        "security.md#what-the-errors-mean",
    ),
    "TlsVerificationError": Remedy(
        "Set ``ssl_cafile`` to the CA of the brokers, or use a host name of the certificate. The "
        "message shows which part failed.",
        "security.md#what-the-errors-mean",
    ),
    "TlsClientCertificateError": Remedy(
        "Set ``ssl_certfile`` and ``ssl_keyfile`` to a certificate that the broker trusts.",
        "security.md#client-certificates",
    ),
    "WrongListenerError": Remedy(
        "Set ``security_protocol`` to the value that the message names, or use the port of another "
        "listener.",
        "troubleshooting.md#the-port-is-a-tls-listener-or-wants-a-login",
    ),
    "ProxyAuthenticationFailedError": Remedy(
        "Put the user and password of the proxy into ``proxy_url``, with percent-encoding.",
        "security.md#proxies",
    ),
    "ProxyRefusedError": Remedy(
        "Have the rules of the proxy allow the address and port of the broker.",
        "security.md#proxies",
    ),
    "SaslServerError": Remedy(
        "Check the address: the server may be another one than you expect. Do not send it the "
        "password by PLAIN.",
        "security.md#what-the-errors-mean",
    ),
    "OAuthTokenError": Remedy(
        "Check the token provider and the clocks of both machines. ``__cause__`` is the error of "
        "the provider.",
        "security.md#oauth-tokens-of-an-identity-provider-oidc",
    ),
    "CredentialsUnavailableError": _CREDENTIALS,
    "OAuthTokenUnavailableError": _CREDENTIALS,
    # Data
    "DataError": _BAD_DATA,
    "CorruptBatchError": _BAD_DATA,
    "UnsupportedCodecError": Remedy(
        "If the message names ``cramjam``, install it. Otherwise skip the batch, and check which "
        "producer wrote it.",
        "poison.md",
    ),
    "DecompressionBudgetError": Remedy(
        "Raise ``decompression_max_bytes`` if the batch is real. Otherwise skip it by "
        '``on_error="skip"``.',
        "troubleshooting.md#a-small-batch-decompresses-to-gigabytes",
    ),
    "RecordDeserializationError": Remedy(
        "Correct the deserializer, or choose by ``on_error``: skip, pause, or keep ``error.key``, "
        "``error.value`` and ``error.headers`` elsewhere and skip.",
        "poison.md",
    ),
    "DeserializerNotReadyError": Remedy(
        "``poll()`` handles it. If your program calls the deserializer, call ``error.prepare()`` "
        "and deserialize again.",
        "schemas.md#records",
    ),
    "NoOffsetForPartitionError": Remedy(
        "Call ``seek()``, commit an offset, or set ``auto_offset_reset`` to earliest or latest.",
        "positions.md",
    ),
    "LogTruncationError": Remedy(
        "Call ``seek(error.topic_partition, error.diverging_offset)`` to read what the new leader "
        "has. Set ``unclean.leader.election.enable=false`` on the brokers.",
        "troubleshooting.md#the-position-jumped-after-a-failure-of-brokers",
    ),
    "TopicRecreatedError": Remedy(
        "Call ``seek()`` to a position of the new topic, or set ``auto_offset_reset`` to earliest "
        "or latest.",
        "positions.md#a-topic-that-is-deleted-and-created-again",
    ),
    # Group
    "GroupError": Remedy("Continue to poll: the consumer rejoins its group.", "rebalancing.md"),
    "CommitFailedError": Remedy(
        "Continue to poll. Another member may repeat the records. Keep the work on one poll "
        "shorter than ``max_poll_interval_ms``.",
        "troubleshooting.md#a-commit-raises-commitfailederror",
    ),
    "OffsetConflictError": Remedy(
        "Start again: the stored offsets decide where to go on. If the message says that the log "
        "or the table was changed, correct results and offset in the database first.",
        "exactly-once.md#what-stops-it",
    ),
    "RebalanceListenerError": Remedy(
        "Correct the listener: ``__cause__`` has its error and ``callback`` the method. Then "
        "continue to poll.",
        "listeners.md",
    ),
    "AssignorError": Remedy(
        "Correct the assignor. It returns a list of partitions for each member id of the "
        "subscriptions.",
        "rebalancing.md#a-custom-assignor",
    ),
    "GroupHasMembersError": Remedy(
        "Stop the members that the message names, wait until the group is empty, then reset again.",
        "operating.md#reset-a-group",
    ),
    "OffsetsChangedError": Remedy(
        "Find the client that commits for the group, such as a consumer with ``assign()``, and "
        "stop it. Then make a new plan and carry it out.",
        "operating.md#reset-a-group",
    ),
    # Schemas
    "SchemaError": Remedy("Catch one of its subclasses.", "schemas.md#errors"),
    "RegistryUnavailableError": Remedy(
        "Call again: no record is skipped. If it stays, check the address and the state of the "
        "registry, or raise ``timeout_ms``.",
        "schemas.md#the-registry",
    ),
    "RegistryRefusedError": Remedy(
        "Correct ``login``, its permissions, ``ssl_context`` or the address. The message has the "
        "registry's reason.",
        "schemas.md#the-registry",
    ),
    "UnknownSchemaError": Remedy(
        "Check that the address is that of the producer's registry. If the schema was deleted "
        "there, register it again or skip the record.",
        "schemas.md#errors",
    ),
    "SchemaNotPreparedError": Remedy(
        "Call ``prepare()`` of the registry before you call the deserializer. ``poll()`` and "
        "``columns()`` do it.",
        "schemas.md#records",
    ),
    "FramingError": Remedy(
        "Skip the record, or read the topic without a schema. The producer did not use a "
        "serializer of a schema registry.",
        "schemas.md#errors",
    ),
    "SchemaMismatchError": Remedy(
        "Skip the record and correct its producer, or use the deserializer of the schema's kind.",
        "schemas.md#errors",
    ),
    "UnsupportedSchemaError": Remedy(
        "Read the topic with a deserializer if the schema is no column. Otherwise correct the "
        "schema or its references.",
        "schemas.md#columns",
    ),
    # Spark
    "OffsetFormatError": Remedy(
        "Correct the JSON of ``startingOffsets`` or ``endingOffsets``. For a checkpoint, check "
        "that this source wrote it.",
        "spark.md#options",
    ),
    "DataLossError": Remedy(
        "Set ``failOnDataLoss=false`` to continue with the records that exist. The message names "
        "the missing ranges.",
        "spark.md#data-loss",
    ),
    "ReadOnlyError": Remedy("Write to another sink, such as Spark's own source for Kafka."),
    "SessionStoppedError": Remedy(
        "Call ``query.stop()`` before ``spark.stop()``.",
        "troubleshooting.md#a-query-ends-with-sessionstoppederror",
    ),
    # Error codes of brokers
    "BrokerResponseError": Remedy(
        "Look up ``code``: the command ``kohort errors`` takes numbers and Kafka's names. Codes "
        "with a class raise that class.",
        "reference/error-codes.md",
    ),
    "UnknownServerError": Remedy(
        "Read the log of the broker. The message names the request.", "reference/error-codes.md"
    ),
    "OffsetOutOfRangeError": Remedy(
        "Set ``auto_offset_reset`` to earliest or latest, or call ``seek()``. With one of these "
        "values the consumer resets the position and logs a warning.",
        "troubleshooting.md#old-records-vanish-before-they-are-read",
    ),
    "CorruptMessageError": Remedy(
        "Nothing at first: the consumer retries. If a fetch repeats it, restore the replica on the "
        "broker, or pass the offset by ``seek()``.",
        "poison.md#batches",
    ),
    "UnknownTopicOrPartitionError": Remedy(
        "Check the name, or create the topic. The consumer continues when it exists.",
        "troubleshooting.md#the-consumer-waits-and-i-may-have-mistyped-the-topic",
    ),
    "InvalidFetchSizeError": Remedy(
        "Check ``fetch_max_bytes`` and ``max_partition_fetch_bytes``.", "reference/options.md"
    ),
    "LeaderNotAvailableError": _RETRIED,
    "NotLeaderOrFollowerError": _RETRIED,
    "RequestTimedOutError": _RETRIED,
    "BrokerNotAvailableError": Remedy("Check that the broker runs, and read its log."),
    "ReplicaNotAvailableError": _RETRIED,
    "RecordTooLargeError": Remedy(
        "Raise ``receive_message_max_bytes`` or ``fetch_max_bytes``, as the message says. Or pass "
        "the batch by ``seek()``.",
        "troubleshooting.md#a-record-is-too-large",
    ),
    "OffsetMetadataTooLargeError": Remedy(
        "Store less in the metadata of a commit, or raise ``offset.metadata.max.bytes`` on the "
        "brokers.",
        "troubleshooting.md#the-metadata-of-a-commit-is-too-large",
    ),
    "NetworkError": _RETRIED,
    "CoordinatorLoadInProgressError": _RETRIED,
    "CoordinatorNotAvailableError": _RETRIED,
    "NotCoordinatorError": _RETRIED,
    "InvalidTopicError": Remedy("Correct the topic name in ``subscribe()`` or ``assign()``."),
    "IllegalGenerationError": _REJOINS,
    "InconsistentGroupProtocolError": Remedy(
        "List one assignor that all members have in ``partition_assignment_strategy``.",
        "troubleshooting.md#the-members-have-no-assignor-in-common",
    ),
    "InvalidGroupIdError": Remedy("Set ``group_id`` to a text that is not empty."),
    "UnknownMemberIdError": _REJOINS,
    "InvalidSessionTimeoutError": Remedy(
        "Set ``session_timeout_ms`` between the limits of the broker, 6 s and 30 minutes by "
        "default.",
        "troubleshooting.md#the-brokers-refuse-the-session-timeout",
    ),
    "RebalanceInProgressError": Remedy(
        "Call ``poll()`` to complete the rebalance, then commit again.",
        "troubleshooting.md#the-group-is-rebalancing-and-accepts-no-commits",
    ),
    "InvalidCommitOffsetSizeError": Remedy(
        "Store less in the metadata of a commit, or commit fewer partitions in one call."
    ),
    "TopicAuthorizationFailedError": Remedy(
        "Grant ``operation`` on ``topics`` to the user. The consumer notices the grant without a "
        "restart, and other topics continue.",
        "security.md#authorization",
    ),
    "GroupAuthorizationFailedError": Remedy(
        "Grant READ on the group to the user. A later ``poll()`` retries.",
        "security.md#authorization",
    ),
    "ClusterAuthorizationFailedError": Remedy(
        "Grant the operation on the cluster to the user.", "security.md#authorization"
    ),
    "InvalidTimestampError": Remedy(
        "Correct the timestamp, or the configs ``message.timestamp.*`` of the topic."
    ),
    "UnsupportedSaslMechanismError": Remedy(
        "Set ``sasl_mechanism`` to one that the message lists.", "security.md#logins"
    ),
    "IllegalSaslStateError": Remedy(
        "Check that ``security_protocol`` is the one of the listener. A proxy that logs in for you "
        "can cause it as well.",
        "security.md#what-the-errors-mean",
    ),
    "UnsupportedVersionError": Remedy(
        "Follow the message: it names the feature that the broker lacks, and often an option that "
        "works without it.",
        "group-protocols.md#limits",
    ),
    "TopicAlreadyExistsError": _TEST_CLUSTER,
    "InvalidPartitionsError": _TEST_CLUSTER,
    "InvalidReplicationFactorError": _TEST_CLUSTER,
    "InvalidConfigError": _TEST_CLUSTER,
    "InvalidRequestError": _DEFECT,
    "UnsupportedForMessageFormatError": Remedy(
        "Do not search by time in this topic, or let the brokers write format 2."
    ),
    "PolicyViolationError": Remedy("Ask the operators of the cluster which policy applies."),
    "OutOfOrderSequenceNumberError": _PRODUCER,
    "DuplicateSequenceNumberError": _PRODUCER,
    "InvalidProducerEpochError": _PRODUCER,
    "InvalidTxnStateError": _PRODUCER,
    "InvalidProducerIdMappingError": _PRODUCER,
    "InvalidTransactionTimeoutError": _PRODUCER,
    "ConcurrentTransactionsError": _RETRIED,
    "TransactionalIdAuthorizationFailedError": _PRODUCER,
    "KafkaStorageError": _RETRIED,
    "SaslAuthenticationFailedError": Remedy(
        "Correct user and password, or the token. For passwords that change, set "
        "``sasl_credentials``.",
        "troubleshooting.md#the-login-fails-or-the-password-is-wrong",
    ),
    "UnknownProducerIdError": _PRODUCER,
    "NonEmptyGroupError": Remedy("Close the members of the group, then repeat the request."),
    "GroupIdNotFoundError": Remedy(
        "Check ``group_id``. If other members keep the group at another type, stop them first.",
        "group-protocols.md#limits",
    ),
    "FetchSessionIdNotFoundError": _RETRIED,
    "InvalidFetchSessionEpochError": _RETRIED,
    "FencedLeaderEpochError": _RETRIED,
    "UnknownLeaderEpochError": _RETRIED,
    "UnsupportedCompressionTypeError": _PRODUCER,
    "OffsetNotAvailableError": _RETRIED,
    "MemberIdRequiredError": _REJOINS,
    "GroupMaxSizeReachedError": Remedy(
        "Stop members that have no partitions, or raise ``group.max.size`` on the brokers.",
        "scaling.md",
    ),
    "FencedInstanceIdError": Remedy(
        "Give each process a unique ``group_instance_id``. Then call ``subscribe()`` to join "
        "again.",
        "troubleshooting.md#fenced_instance_id",
    ),
    "InvalidRecordError": _PRODUCER,
    "UnstableOffsetCommitError": Remedy(
        "Nothing at first: the consumer retries until the transaction ends. If it lasts, find the "
        "producer that does not end its transaction.",
    ),
    "ThrottlingQuotaExceededError": Remedy(
        "Nothing at first: the consumer retries later. If it lasts, ask for a higher quota of this "
        "``client_id`` or user.",
    ),
    "ProducerFencedError": _PRODUCER,
    "ResourceNotFoundError": Remedy("Check the name of the resource in the message."),
    "UnknownTopicIdError": _RETRIED,
    "InconsistentTopicIdError": _RETRIED,
    "FetchSessionTopicIdError": _RETRIED,
    "OffsetMovedToTieredStorageError": Remedy(
        "Check which server responds: Apache Kafka sends this code to other brokers alone."
    ),
    "FencedMemberEpochError": _REJOINS,
    "UnreleasedInstanceIdError": Remedy(
        "Wait: the consumer joins when the session of the old member ends. Let processes end by "
        "``close()``, so that the id is free at once.",
        "troubleshooting.md#unreleased_instance_id-after-a-pod-was-killed",
    ),
    "UnsupportedAssignorError": Remedy(
        "Set ``group_remote_assignor`` to one that the brokers have: ``uniform`` or ``range`` by "
        "default.",
        "group-protocols.md#what-each-option-does",
    ),
    "StaleMemberEpochError": Remedy(
        "Continue to poll: the consumer repeats the request with its new epoch.",
        "group-protocols.md#commits",
    ),
    "InvalidRegularExpressionError": Remedy(
        "Correct the ``SubscriptionPattern``. Brokers read it by the syntax of RE2/J.",
        "group-protocols.md#patterns-of-the-brokers",
    ),
    "RebootstrapRequiredError": Remedy(
        "Set ``metadata_recovery_strategy`` to its default, rebootstrap. The consumer then "
        "connects to ``bootstrap_servers`` again.",
        "reference/options.md#metadata_recovery_strategy",
    ),
}
"""Name of each public error class, and of those of the Spark source -> its remedy."""
