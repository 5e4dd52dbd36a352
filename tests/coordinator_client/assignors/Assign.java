import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

/** Deals with Kafka's own assignors: groups as JSON in, one assignment for each out. */
public class Assign {
    private static final Map<String, Class<? extends ConsumerPartitionAssignor>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class,
        "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class,
        "cooperative-sticky", CooperativeStickyAssignor.class);

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ArrayNode results = json.createArrayNode();
        for (JsonNode group : json.readTree(System.in)) {
            ObjectNode result = results.addObject();
            ConsumerPartitionAssignor assignor =
                ASSIGNORS.get(group.get("assignor").asText()).getDeclaredConstructor().newInstance();
            GroupAssignment dealt = assignor.assign(cluster(group), subscriptions(group));
            dealt.groupAssignment().forEach((member, given) -> {
                ArrayNode partitions = result.putArray(member);
                given.partitions().forEach(tp -> partitions.addArray().add(tp.topic()).add(tp.partition()));
            });
        }
        System.out.println(json.writeValueAsString(results));
    }

    private static Cluster cluster(JsonNode group) {
        Map<String, Node> nodes = new TreeMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        group.get("topics").fields().forEachRemaining(topic -> {
            int number = 0;
            for (JsonNode racks : topic.getValue()) {
                List<Node> replicas = new ArrayList<>();
                racks.forEach(rack -> replicas.add(nodes.computeIfAbsent(
                    rack.asText(), name -> new Node(nodes.size(), "h", 1, name))));
                if (replicas.isEmpty())
                    replicas.add(nodes.computeIfAbsent("", name -> new Node(nodes.size(), "h", 1)));
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(topic.getKey(), number++, all[0], all, all));
            }
        });
        return new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
    }

    private static GroupSubscription subscriptions(JsonNode group) {
        Map<String, Subscription> found = new HashMap<>();
        group.get("members").fields().forEachRemaining(member -> {
            JsonNode said = member.getValue();
            List<String> topics = new ArrayList<>();
            said.get("topics").forEach(topic -> topics.add(topic.asText()));
            List<TopicPartition> owned = new ArrayList<>();
            said.get("owned").forEach(tp -> owned.add(new TopicPartition(tp.get(0).asText(), tp.get(1).asInt())));
            JsonNode data = said.get("user_data");
            Subscription subscription = new Subscription(
                topics,
                data.isNull() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(data.asText())),
                owned,
                said.get("generation").asInt(),
                Optional.ofNullable(said.get("rack").textValue()));
            subscription.setGroupInstanceId(Optional.ofNullable(said.get("instance").textValue()));
            found.put(member.getKey(), subscription);
        });
        return new GroupSubscription(found);
    }
}
