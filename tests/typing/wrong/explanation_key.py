"""A key of the explanation is misspelt."""

from __future__ import annotations

from kohort import KafkaConsumer

facts = KafkaConsumer("orders").explain().as_dict()
# expect: mypy typeddict-item | pyright reportGeneralTypeIssues
print(facts["partition"])
