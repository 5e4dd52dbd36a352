"""A proxy before another cluster, whose rules are those of a cluster in the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from kohort.broker._cluster_server import ClusterServer
from kohort.broker.network._relay import find_brokers
from kohort.broker.requests._dispatch import ReceivedRequest
from kohort.config._client import parse_server
from kohort.errors import IllegalStateError, InvalidOptionError
from kohort.protocol.messages import MetadataRequest
from kohort.testing._cluster import Cluster
from kohort.testing._fault_control import FaultControl

T = TypeVar("T")


class Proxy(FaultControl):
    """A proxy between clients and a cluster such as Apache Kafka; a context manager.

    ``to`` has the addresses of brokers, with commas. The first one that responds is used. Each
    broker of its cluster gets a listener. Responses keep the ids of the brokers and name the
    addresses of the listeners. Brokers that join the cluster later have none: clients connect to
    them without faults. A warning names each of them. Start the proxy again then.

    :meth:`on`, :meth:`fail`, :meth:`delay`, :meth:`disconnect`, :meth:`hang`, :meth:`slow` and
    :meth:`network_partition` work as those of :class:`Cluster`. Their ``node`` is the id of a
    broker if the ids follow each other. Otherwise it counts the listeners from the first id on.
    Both sides are without TLS and login: rules about logins have no effect. Rules about TLS and
    about stored records raise an error.

    :meth:`fail` does not take Metadata, because only the other cluster knows its topics. A handler
    of :meth:`on` sets the errors in the response of ``call.proceed()``, and does not return
    ``call.error()``. Fetches have no fetch session, so :meth:`fail` reaches all their partitions.

    ``ports`` has one port for each broker, or the first one's port; the default is free ports.
    """

    def __init__(
        self,
        to: str,
        *,
        host: str = "127.0.0.1",
        ports: Sequence[int] | int | None = None,
        advertised_host: str | None = None,
        seed: int | None = None,
    ) -> None:
        try:
            self._servers = [parse_server(each) for each in to.split(",")]
        except ValueError as error:
            raise InvalidOptionError(f"to={to!r} is not HOST:PORT: {error}") from error
        self._options = {"ports": ports, "advertised_host": advertised_host, "seed": seed}
        self._listen_on = host
        self._cluster: Cluster | None = None

    def start(self) -> None:
        """Start the listeners.

        OSError with the address if the other cluster cannot be reached, or a port is not available.
        """
        if self._cluster is not None:
            raise IllegalStateError("the proxy is already started")
        brokers = find_brokers(self._servers)
        cluster = Cluster(
            len(brokers),
            host=self._listen_on,
            configs={"node.id": str(brokers[0].id)},
            **self._options,  # type: ignore[arg-type]  # their types are those of __init__()
        )
        cluster._remote_brokers = brokers
        cluster.start()
        self._cluster = cluster

    def stop(self) -> None:
        """Close all connections and end the listeners."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the listeners, in the order of the ids of the brokers."""
        return self._started.bootstrap_servers

    @property
    def requests(self) -> list[ReceivedRequest]:
        """The latest 10,000 requests of all clients, in the order of their arrival."""
        return self._started.requests

    @property
    def _started(self) -> Cluster:
        if self._cluster is None:
            raise IllegalStateError("the proxy is not running: use `with Proxy(to) as proxy:`")
        return self._cluster

    def _check_failable(self, key: int) -> None:
        if key == MetadataRequest.api_key:
            raise InvalidOptionError(
                "fail() of a proxy does not support Metadata, because only the cluster knows its "
                "topics. Use on(), and set the errors in the response of `await call.proceed()`"
            )
        super()._check_failable(key)

    def _call(self, function: Callable[[ClusterServer], T]) -> T:
        return self._started._call(function)

    def __enter__(self) -> Proxy:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
