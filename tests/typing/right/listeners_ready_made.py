"""The listeners of kohort serve both consumers."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.listeners import CommitOnRevoke, ListenerChain, LoggingRebalanceListener

consumer = KafkaConsumer(group_id="billing", enable_auto_commit=False)
chain = ListenerChain(LoggingRebalanceListener(), CommitOnRevoke(consumer))
consumer.subscribe(["orders"], listener=chain)
other = AsyncKafkaConsumer(group_id="billing")
other.subscribe(["orders"], listener=CommitOnRevoke(other))
other.subscribe(["orders"], listener=LoggingRebalanceListener())
