import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Draws groups from a seed and prints what Kafka's own assignors compute, one JSON object a line.
 *
 * <p>Arguments: seed, number of cases. Each group lives a few rounds, and the assignment of one
 * round is the previous one of the next. Members and topics are listed in the order in which the
 * assignor iterates over them.
 */
public final class AssignorCases {
    private static final int MAX_ROUNDS = 6;

    private final Random random;
    private final ConsumerGroupPartitionAssignor assignor;
    private final boolean equalSubscriptions;
    private final Map<String, Uuid> topics = new LinkedHashMap<>();
    private final Map<String, Integer> partitions = new HashMap<>();
    private final Map<String, Member> members = new LinkedHashMap<>();
    private int created;

    private static final class Member {
        String instanceId;
        Set<String> subscribed = new TreeSet<>();
        Map<String, Set<Integer>> previous = new HashMap<>();
    }

    private AssignorCases(Random random) {
        this.random = random;
        this.assignor = random.nextInt(3) == 0 ? new RangeAssignor() : new UniformAssignor();
        this.equalSubscriptions = random.nextInt(2) == 0;
        int topicCount = 1 + random.nextInt(7);
        for (int i = 0; i < topicCount; i++) {
            addTopic();
        }
        int memberCount = 1 + random.nextInt(9);
        for (int i = 0; i < memberCount; i++) {
            addMember();
        }
    }

    public static void main(String[] args) throws Exception {
        Random random = new Random(Long.parseLong(args[0]));
        int left = Integer.parseInt(args[1]);
        ObjectMapper json = new ObjectMapper();
        while (left > 0) {
            AssignorCases group = new AssignorCases(random);
            int rounds = Math.min(left, 1 + random.nextInt(MAX_ROUNDS));
            for (int round = 0; round < rounds; round++) {
                System.out.println(json.writeValueAsString(group.assign()));
                group.change();
            }
            left -= rounds;
        }
    }

    private Uuid uuid() {
        return new Uuid(random.nextLong(), random.nextLong());
    }

    private void addTopic() {
        String name = "topic-" + created++;
        topics.put(name, uuid());
        partitions.put(name, 1 + random.nextInt(random.nextInt(4) == 0 ? 30 : 7));
    }

    private void addMember() {
        Member member = new Member();
        if (random.nextInt(4) == 0) {
            member.instanceId = "instance-" + created++;
        }
        subscribe(member);
        members.put(uuid().toString(), member);
    }

    private void subscribe(Member member) {
        member.subscribed.clear();
        for (String name : topics.keySet()) {
            if (equalSubscriptions || random.nextInt(3) > 0) {
                member.subscribed.add(name);
            }
        }
    }

    private <T> T any(Set<T> from) {
        return new ArrayList<>(from).get(random.nextInt(from.size()));
    }

    private void change() {
        int changes = random.nextInt(3);
        for (int i = 0; i < changes; i++) {
            switch (random.nextInt(7)) {
                case 0, 1 -> addMember();
                case 2, 3 -> {
                    if (members.size() > 1) {
                        members.remove(any(members.keySet()));
                    }
                }
                case 4 -> {
                    addTopic();
                    members.values().forEach(this::subscribe);
                }
                case 5 -> {
                    if (topics.size() > 1) {
                        String gone = any(topics.keySet());
                        topics.remove(gone);
                        members.values().forEach(member -> member.subscribed.remove(gone));
                    }
                }
                default -> partitions.merge(any(topics.keySet()), 1 + random.nextInt(4), Integer::sum);
            }
        }
        if (!equalSubscriptions && random.nextInt(3) == 0) {
            subscribe(members.get(any(members.keySet())));
        }
    }

    private Map<String, Object> assign() {
        Set<Uuid> everyTopic = new HashSet<>(topics.values());
        Map<Uuid, String> names = new HashMap<>();
        topics.forEach((name, id) -> names.put(id, name));
        boolean isEqual =
            members.values().stream().map(member -> member.subscribed).distinct().count() == 1;
        List<Uuid> order = new ArrayList<>(everyTopic);
        if (isEqual) {
            Set<Uuid> subscribed = new HashSet<>();
            members.values().iterator().next().subscribed.forEach(name -> subscribed.add(topics.get(name)));
            order = new ArrayList<>(new HashSet<>(subscribed));
        }

        Map<String, MemberSubscriptionAndAssignmentImpl> specs = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Map<String, Object> shownMembers = new LinkedHashMap<>();
        for (Map.Entry<String, Member> entry : members.entrySet()) {
            Member member = entry.getValue();
            Set<Uuid> subscribed = new LinkedHashSet<>();
            Map<Uuid, Set<Integer>> previous = new LinkedHashMap<>();
            for (Uuid id : order) {
                String name = names.get(id);
                if (member.subscribed.contains(name)) {
                    subscribed.add(id);
                }
            }
            for (Uuid id : order) {
                Set<Integer> held = member.previous.get(names.get(id));
                if (held != null) {
                    previous.put(id, new TreeSet<>(held));
                }
            }
            previous.forEach((id, held) -> held.forEach(partition ->
                owners.computeIfAbsent(id, ignored -> new HashMap<>()).put(partition, entry.getKey())));
            specs.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(member.instanceId), subscribed,
                new Assignment(Collections.unmodifiableMap(previous))));
            Map<String, Object> shown = new LinkedHashMap<>();
            if (member.instanceId != null) {
                shown.put("instance_id", member.instanceId);
            }
            shown.put("topics", new TreeSet<>(member.subscribed));
            shown.put("previous", sorted(member.previous));
            shownMembers.put(entry.getKey(), shown);
        }

        GroupAssignment result = assignor.assign(
            new GroupSpecImpl(
                specs, isEqual ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, owners),
            new SubscribedTopicDescriber() {
                @Override
                public int numPartitions(Uuid id) {
                    return names.containsKey(id) ? partitions.get(names.get(id)) : -1;
                }

                @Override
                public Set<String> racksForPartition(Uuid id, int partition) {
                    return Set.of();
                }
            });

        Map<String, Object> expected = new LinkedHashMap<>();
        for (Map.Entry<String, Member> entry : members.entrySet()) {
            Map<String, Set<Integer>> held = new HashMap<>();
            if (result.members().containsKey(entry.getKey())) {
                result.members().get(entry.getKey()).partitions().forEach((id, parts) -> {
                    if (!parts.isEmpty()) {
                        held.put(names.get(id), new HashSet<>(parts));
                    }
                });
            }
            entry.getValue().previous = held;
            expected.put(entry.getKey(), sorted(held));
        }
        Map<String, Object> shownTopics = new LinkedHashMap<>();
        topics.forEach((name, id) ->
            shownTopics.put(name, Map.of("id", id.toString(), "partitions", partitions.get(name))));
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("assignor", assignor.name());
        shown.put("topics", shownTopics);
        shown.put("topic_iteration", order.stream().map(names::get).toList());
        shown.put("members", shownMembers);
        shown.put("expected", expected);
        return shown;
    }

    private static Map<String, Object> sorted(Map<String, Set<Integer>> held) {
        Map<String, Object> shown = new LinkedHashMap<>();
        new TreeSet<>(held.keySet()).forEach(name -> shown.put(name, new TreeSet<>(held.get(name))));
        return shown;
    }
}
