"""Program that a clean environment runs: a consumer reads records of the in-process cluster.

It needs the installed kohort alone, so it imports nothing of tools.
"""

from __future__ import annotations

import logging
import sys
import time


def main(wanted: int, decoders: str) -> None:
    """Read ``wanted`` uncompressed records and a batch of each codec by the expected decoders."""
    from kohort import KafkaConsumer, TopicPartition, __version__
    from kohort.records import Compression
    from kohort.testing import Cluster

    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    with Cluster(topics={"plain": 1, "packed": 1}) as cluster:
        for start in range(0, wanted, 1000):
            cluster.produce("plain", [b"%0100d" % n for n in range(start, start + 1000)])
        for codec in Compression:
            cluster.produce("packed", [codec.name.encode()] * 3, compression=codec)
        with KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition("plain", 0)])
            began, read = time.perf_counter(), 0
            while read < wanted:
                for records in consumer.poll(timeout_ms=1000).values():
                    for record in records:
                        assert record.value == b"%0100d" % read, record
                        read += 1
            seconds = time.perf_counter() - began
            consumer.assign([TopicPartition("packed", 0)])
            packed = [next(consumer).value for _ in range(3 * len(Compression))]
            assert packed == [each.name.encode() for each in Compression for _ in range(3)], packed
            facts = consumer.explain().as_dict()["decoders"]
    assert facts["compiled"] is (decoders == "compiled"), facts
    assert sum(line.startswith(f"record decoders: {decoders}") for line in logged) == 1, logged
    print(f"kohort {__version__}, {decoders}, reads {read:,} records in {seconds:.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
