"""Random lives of a group: members of both protocols join, heartbeat, commit and leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial

from kohort.protocol.messages import LeaveGroupRequest, OffsetDeleteRequest
from tests.conformance.classic_consumers import ClassicConsumer, stable_consumers
from tests.conformance.consumers import (
    LEAVE_FOR_NOW,
    ConsumerMember,
    described,
    new_topic,
)
from tests.conformance.probes.epoch_offsets import commit_as, fetch_as
from tests.conformance.probes.upgrading import views
from tests.conformance.session import Session

TOPICS = {"x": 12, "y": 5}
MAX_CONSUMERS, MAX_CLASSIC = 4, 2
Action = tuple[str, Callable[[], object]]


class RandomGroup:
    """Group with random members. Equal seeds do the same on both clusters.

    The assignor is ``range``, whose result depends on the ids of members alone. The classic members
    are static, because Kafka orders dynamic ones by ids that it invents. One consumer member never
    leaves, so no request is parked.
    """

    def __init__(self, session: Session, seed: int) -> None:
        self._session = session
        self._rng = random.Random(seed)
        self._group = session.name("g")
        self._topics = {label: new_topic(session, label, size) for label, size in TOPICS.items()}
        self._made = 0
        self._consumers: list[ConsumerMember] = []
        self._classic: list[ClassicConsumer] = []
        self._gone: list[ConsumerMember] = []

    def run(self, steps: int) -> Iterator[tuple[str, object]]:
        """Yield the response to each step, and the group after every tenth."""
        if self._rng.random() < 0.5:
            first = self._new_classic()
            stable_consumers((first, {first.topics[0]: list(range(TOPICS["x"]))}))
            self._classic.append(first)
        anchor = self._new_consumer()
        self._consumers.append(anchor)
        yield "0. the first joins", anchor.join()
        for number in range(1, steps + 1):
            label, action = self._rng.choice(list(self._actions()))
            yield f"{number}. {label}", action()
            if number % 10 == 0:
                yield f"{number}. described", described(self._session, self._group)
        yield "in the end", views(self._session, self._group)

    # Members

    def _names(self, *counts: int) -> list[str]:
        """Return the names of some topics.

        A member that joins has one at least. Kafka's assignors take all members for equal after
        one without topics has joined, and the order of a hash table decides what they get.
        """
        count = self._rng.choice((1, 1, 2, *counts))
        return [self._topics[label] for label in self._rng.sample(sorted(TOPICS), count)]

    def _new_consumer(self) -> ConsumerMember:
        self._made += 1
        instance = f"i{self._made:03}" if self._rng.random() < 0.4 else None
        name = f"m{self._made:03}"
        return ConsumerMember(
            self._session, self._group, name, self._names(), instance, assignor="range"
        )

    def _new_classic(self) -> ClassicConsumer:
        self._made += 1
        return ClassicConsumer(
            self._session,
            self._group,
            instance=f"c{self._made:03}",
            topics=[self._topics["x"]],
        )

    def _join(self) -> object:
        one = self._new_consumer()
        self._consumers.append(one)
        return one.join()

    def _join_classic(self) -> object:
        one = self._new_classic()
        self._classic.append(one)
        return one.join()

    def _leave(self, one: ConsumerMember, epoch: int) -> object:
        self._consumers.remove(one)
        self._gone.append(one)
        return one.leave(epoch)

    def _return(self, gone: ConsumerMember) -> object:
        self._made += 1
        again = ConsumerMember(
            self._session,
            self._group,
            self._rng.choice((gone.id, f"m{self._made:03}")),
            self._rng.choice((gone.topics or self._names(), self._names())),
            gone.instance,
            assignor="range",
        )
        self._gone.remove(gone)
        self._consumers.append(again)
        return again.join()

    def _take(self, one: ConsumerMember, instance: str) -> object:
        """Join again with the instance id of a member that has left."""
        response = one.join(instance_id=instance)
        if response.error_code == 0:
            one.instance = instance
        return response

    def _leave_classic(self, one: ClassicConsumer) -> object:
        self._classic.remove(one)
        return one.leave()

    def _remove(self, one: ConsumerMember) -> object:
        self._consumers.remove(one)
        who = LeaveGroupRequest.MemberIdentity(member_id=one.id, group_instance_id=one.instance)
        return self._session.ask(LeaveGroupRequest(group_id=self._group, members=[who]), 5)

    # Actions

    def _actions(self) -> Iterator[Action]:
        """Yield the actions that are possible now. Frequent ones come several times."""
        _anchor, *others = self._consumers
        for one in self._consumers:
            yield from self._of_consumer(one)
        for one in others:
            yield f"{one.id} leaves", partial(self._leave, one, -1)
            if one.instance:
                yield f"{one.id} leaves for now", partial(self._leave, one, LEAVE_FOR_NOW)
        if others:
            yield f"{others[-1].id} is removed", partial(self._remove, others[-1])
        for gone in self._gone[-2:]:
            yield f"{gone.id} returns", partial(self._return, gone)
            yield f"{gone.id} beats as a ghost", gone.beat
            if others and gone.instance:
                one = self._rng.choice(others)
                yield f"{one.id} takes {gone.instance}", partial(self._take, one, gone.instance)
        for classic in self._classic:
            yield from self._of_classic(classic)
        if len(self._consumers) < MAX_CONSUMERS:
            yield from [("another joins", self._join)] * 3
        if len(self._classic) < MAX_CLASSIC:
            yield from [("a classic one joins", self._join_classic)] * 2
        yield "offsets of all", partial(fetch_as, self._session, self._group, None, None, -1)
        yield "offsets are deleted", self._delete_offsets

    def _of_consumer(self, one: ConsumerMember) -> Iterator[Action]:
        rng = self._rng
        yield from [(f"{one.id} beats", one.beat)] * 3
        yield from [(f"{one.id} acknowledges", one.acknowledge)] * 4
        yield f"{one.id} sends all", one.repeat
        yield f"{one.id} owns nothing", partial(one.beat, topic_partitions=[])
        yield f"{one.id} joins again", one.join
        names = self._names(0)
        yield f"{one.id} wants {len(names)}", partial(self._subscribe, one, names)
        epoch = one.epoch + rng.choice((-2, -1, 1))
        yield f"{one.id} beats with another epoch", partial(one.beat, member_epoch=epoch)
        partitions = [rng.randrange(TOPICS["y"]) for _ in range(rng.choice((1, 2)))]
        partitions = sorted(set(partitions))
        if one.topics:
            for at in (one.epoch, epoch):
                yield (
                    f"{one.id} commits {partitions}, {at - one.epoch}",
                    partial(commit_as, one, partitions, generation_id_or_member_epoch=at),
                )
            topic = one.topics[0]
            yield (
                f"{one.id} fetches",
                partial(fetch_as, self._session, self._group, topic, one.id, one.epoch),
            )

    def _subscribe(self, one: ConsumerMember, names: list[str]) -> object:
        one.topics = names
        return one.beat(subscribed_topic_names=names)

    def _of_classic(self, one: ClassicConsumer) -> Iterator[Action]:
        yield from [(f"{one.instance} beats", one.heartbeat)] * 2
        yield from [(f"{one.instance} syncs", one.resync)] * 2
        yield from [(f"{one.instance} joins with nothing", partial(one.rejoin, {}))] * 2
        held = {self._topics["x"]: sorted(self._rng.sample(range(TOPICS["x"]), 3))}
        yield f"{one.instance} joins with some", partial(one.rejoin, held)
        yield f"{one.instance} commits", partial(self._commit_classic, one)
        yield f"{one.instance} leaves", partial(self._leave_classic, one)

    def _commit_classic(self, one: ClassicConsumer) -> object:
        return self._session.ask(one.commit_request(self._topics["x"], 3), 8)

    def _delete_offsets(self) -> object:
        cls = OffsetDeleteRequest
        partition = cls.OffsetDeleteRequestPartition(partition_index=0)
        topics = [
            cls.OffsetDeleteRequestTopic(name=name, partitions=[partition])
            for name in self._topics.values()
        ]
        return self._session.ask(cls(group_id=self._group, topics=topics), 0)
