import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What benchmarks/_processed.py does, with Parallel Consumer: servers, topic, group, order, records. */
public class Parallel {
    public static void main(String[] told) throws Exception {
        Properties options = new Properties();
        options.put("bootstrap.servers", told[0]);
        options.put("group.id", told[2]);
        options.put("auto.offset.reset", "earliest");
        options.put("enable.auto.commit", "false");
        var bytes = new ByteArrayDeserializer();
        var consumer = new KafkaConsumer<byte[], byte[]>(options, bytes, bytes);
        var processor = ParallelStreamProcessor.createEosStreamProcessor(
            ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.valueOf(told[3].toUpperCase()))
                .maxConcurrency(100)
                .consumer(consumer)
                .build());
        processor.subscribe(List.of(told[1]));
        AtomicLong began = new AtomicLong();
        CountDownLatch left = new CountDownLatch(Integer.parseInt(told[4]));
        processor.poll(context -> {
            began.compareAndSet(0, System.nanoTime());
            long ms = Long.parseLong(new String(context.value()));
            try {
                if (ms > 0) {
                    Thread.sleep(ms);
                }
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
            left.countDown();
        });
        left.await();
        System.out.printf("{\"seconds\": %f}%n", (System.nanoTime() - began.get()) / 1e9);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
