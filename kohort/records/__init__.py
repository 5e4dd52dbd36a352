"""Record batches of message format 2: reading, writing, compression, checksums, and the record.

``split_batches(data)`` yields batches after it has read only their headers. ``batch.check_crc()``
verifies a batch, and ``batch.records()`` decodes its records.
"""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.records._decoder_choice import (
    COMPILED,
    PLAIN_REASON,
    AsyncIteration,
    RecordRun,
    SyncIteration,
    WakeUp,
    compiled_module,
    decoder_choice,
)
from kohort.records._header import HEADER_SIZE, BatchHeader, read_header
from kohort.records._legacy import scan_messages
from kohort.records._record import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    ConsumerRecord,
    Headers,
    K,
    Record,
    V,
    deserialized,
    keep_bytes,
)
from kohort.records._record_batch import BatchSplit, RecordBatch, split_batches
from kohort.records._record_set import RecordSet
from kohort.records._transactions import (
    AbortedTransactions,
    ControlType,
    control_type,
    end_marker,
    marker_epoch,
)
from kohort.records.codecs._compression import DEFAULT_BUDGET, Compression, compress
from kohort.records.codecs._crc32c import crc32c
from kohort.records.codecs._scratch import Scratch
from kohort.types import lazy_names

if TYPE_CHECKING:
    from kohort.records._encode import NewRecord, encode_batch, rewrite_header
    from kohort.records._key_partition import key_partition
    from kohort.records._message_choice import (
        MessageRecord,
        as_message_type,
        learn_locks,
        lock_records,
        mark_open,
        turn_into,
    )
    from kohort.records.codecs._decompress import decompress, decompress_into
    from kohort.records.tables._arrow import allocate_in_arrow, arrow_schema, to_arrow
    from kohort.records.tables._table import (
        MAX_ROWS,
        Allocate,
        SizeHistory,
        Table,
        TablePlan,
        allocate_in_python,
    )
    from kohort.records.tables._views import RecordColumns, RecordTable, to_columns

__all__ = [
    "COMPILED",
    "CREATE_TIME",
    "DEFAULT_BUDGET",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "MAX_ROWS",
    "NO_TIMESTAMP",
    "PLAIN_REASON",
    "AbortedTransactions",
    "Allocate",
    "AsyncIteration",
    "BatchHeader",
    "BatchSplit",
    "Compression",
    "ConsumerRecord",
    "ControlType",
    "Headers",
    "K",
    "MessageRecord",
    "NewRecord",
    "Record",
    "RecordBatch",
    "RecordColumns",
    "RecordRun",
    "RecordSet",
    "RecordTable",
    "Scratch",
    "SizeHistory",
    "SyncIteration",
    "Table",
    "TablePlan",
    "V",
    "WakeUp",
    "allocate_in_arrow",
    "allocate_in_python",
    "arrow_schema",
    "as_message_type",
    "compiled_module",
    "compress",
    "control_type",
    "crc32c",
    "decoder_choice",
    "decompress",
    "decompress_into",
    "deserialized",
    "encode_batch",
    "end_marker",
    "keep_bytes",
    "key_partition",
    "learn_locks",
    "lock_records",
    "mark_open",
    "marker_epoch",
    "read_header",
    "rewrite_header",
    "scan_messages",
    "split_batches",
    "to_arrow",
    "to_columns",
    "turn_into",
]

_LATER = {
    "Allocate": "kohort.records.tables._table",
    "SizeHistory": "kohort.records.tables._table",
    "MAX_ROWS": "kohort.records.tables._table",
    "MessageRecord": "kohort.records._message_choice",
    "NewRecord": "kohort.records._encode",
    "RecordColumns": "kohort.records.tables._views",
    "RecordTable": "kohort.records.tables._views",
    "Table": "kohort.records.tables._table",
    "TablePlan": "kohort.records.tables._table",
    "arrow_schema": "kohort.records.tables._arrow",
    "as_message_type": "kohort.records._message_choice",
    "decompress": "kohort.records.codecs._decompress",
    "decompress_into": "kohort.records.codecs._decompress",
    "encode_batch": "kohort.records._encode",
    "key_partition": "kohort.records._key_partition",
    "learn_locks": "kohort.records._message_choice",
    "lock_records": "kohort.records._message_choice",
    "mark_open": "kohort.records._message_choice",
    "allocate_in_arrow": "kohort.records.tables._arrow",
    "allocate_in_python": "kohort.records.tables._table",
    "rewrite_header": "kohort.records._encode",
    "to_arrow": "kohort.records.tables._arrow",
    "to_columns": "kohort.records.tables._views",
    "turn_into": "kohort.records._message_choice",
}
"""The module of each name that is imported on first use."""

if not TYPE_CHECKING:  # mypy would accept every name
    # A consumer of uncompressed records needs neither tables nor codecs, and writes no batch.
    __getattr__, __dir__ = lazy_names(__name__, _LATER.get)
