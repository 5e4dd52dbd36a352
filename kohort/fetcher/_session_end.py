"""The last request of fetch sessions."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import anyio

from kohort.config import FetchConfig
from kohort.errors import KafkaError
from kohort.fetcher._cluster_view import FetchCluster
from kohort.fetcher._request import FetchRequestPlan, fetch_request
from kohort.transport import start_soon

logger = logging.getLogger("kohort.fetcher")


async def end_sessions(
    cluster: FetchCluster,
    config: FetchConfig,
    plans: Iterable[tuple[int, FetchRequestPlan]],
    timeout: float,
) -> None:
    """Send each broker the end of its session within ``timeout`` seconds; never raises."""

    async def end(node: int, plan: FetchRequestPlan) -> None:
        try:
            await cluster.request(
                fetch_request(config, plan, 0, 0), node=node, max_version=plan.max_version
            )
        except KafkaError as error:
            logger.debug("closing a fetch session at broker %d failed: %s", node, str(error))

    with anyio.move_on_after(timeout):
        async with anyio.create_task_group() as tasks:
            for node, plan in plans:
                start_soon(tasks, end, node, plan)
