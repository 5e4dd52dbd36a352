import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What benchmarks/_read.py does, with Kafka's own client: servers, topic, group, records. */
public class Drain {
    public static void main(String[] told) throws Exception {
        var bean = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        Properties options = new Properties();
        options.put("bootstrap.servers", told[0]);
        options.put("group.id", told[2]);
        options.put("auto.offset.reset", "earliest");
        options.put("enable.auto.commit", "true");
        options.put("check.crcs", "true");
        options.put("key.deserializer", ByteArrayDeserializer.class.getName());
        options.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(options);
        consumer.subscribe(List.of(told[1]));
        long wanted = Long.parseLong(told[3]);
        long records = 0, total = 0, began = 0, cpuBefore = 0, first = 0;
        while (records < wanted) {
            ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofSeconds(1));
            if (began == 0 && batch.count() > 0) {
                began = System.nanoTime();
                cpuBefore = bean.getProcessCpuTime();
                first = batch.count();
            }
            for (ConsumerRecord<byte[], byte[]> record : batch) {
                records++;
                total += record.key().length + record.value().length + record.offset() + record.timestamp();
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = (bean.getProcessCpuTime() - cpuBefore) / 1e9;
        double peak = 0;
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM")) {
                peak = Long.parseLong(line.replaceAll("[^0-9]", "")) / 1000.0;
            }
        }
        System.out.printf(
            "{\"records\": %d, \"total\": %d, \"seconds\": %f, \"cpu_s\": %f, \"peak_mb\": %f, \"first\": %d}%n",
            records, total, seconds, cpu, peak, first);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
