import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Member that polls for 100 ms at a time and prints events as VerifiableConsumer does: servers, topic, group, name. */
public class JavaMember implements ConsumerRebalanceListener {
    public static void main(String[] given) {
        Properties options = new Properties();
        options.put("bootstrap.servers", given[0]);
        options.put("group.id", given[2]);
        options.put("client.id", given[3]);
        options.put("group.protocol", "consumer");
        options.put("auto.offset.reset", "earliest");
        options.put("key.deserializer", ByteArrayDeserializer.class.getName());
        options.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options);
        consumer.partitionsFor(given[1]);
        print("startup_complete", List.of());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException over) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(given[1]), new JavaMember());
        try {
            while (true) {
                consumer.poll(Duration.ofMillis(100));
            }
        } catch (WakeupException over) {
            consumer.close();
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        print("partitions_assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        print("partitions_revoked", partitions);
    }

    private static synchronized void print(String name, Collection<TopicPartition> partitions) {
        String moved = partitions.stream()
            .map(partition -> "{\"partition\":" + partition.partition() + "}")
            .collect(Collectors.joining(","));
        System.out.println("{\"timestamp\":" + System.currentTimeMillis() + ",\"name\":\"" + name
            + "\",\"partitions\":[" + moved + "]}");
    }
}
