import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What benchmarks/_queue.py does, with Kafka's own client: servers, topic, group, records, mode, members. */
public class Queue {
    static final Object LOCK = new Object();
    static final List<Long> AT = new ArrayList<>();
    static long records, total, began, cpuBefore, first, polls;

    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    static void take(String[] told) throws Exception {
        long wanted = Long.parseLong(told[3]);
        boolean isExplicit = told[4].equals("explicit"), isReceived = told[4].equals("received");
        Properties options = new Properties();
        options.put("bootstrap.servers", told[0]);
        options.put("group.id", told[2]);
        options.put("share.acknowledgement.mode", isExplicit ? "explicit" : "implicit");
        options.put("key.deserializer", ByteArrayDeserializer.class.getName());
        options.put("value.deserializer", ByteArrayDeserializer.class.getName());
        KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(options);
        consumer.subscribe(List.of(told[1]));
        while (true) {
            ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofSeconds(1));
            long now = System.nanoTime(), sum = 0;
            for (ConsumerRecord<byte[], byte[]> record : batch) {
                if (!isReceived) {
                    sum += record.key().length + record.value().length + record.offset() + record.timestamp();
                }
                if (isExplicit) {
                    consumer.acknowledge(record);
                }
            }
            synchronized (LOCK) {
                polls++;
                if (batch.isEmpty()) {
                    continue;
                }
                if (began == 0) {
                    began = System.nanoTime();
                    cpuBefore = cpu();
                    first = batch.count();
                    if (isReceived) {
                        polls = 0;
                        System.out.println("ready");
                        System.out.flush();
                        continue;
                    }
                }
                records += batch.count();
                total += sum;
                for (int each = 0; isReceived && each < batch.count(); each++) {
                    AT.add(now);
                }
                if (records < wanted) {
                    continue;
                }
            }
            consumer.commitSync();
            finish(isReceived);
        }
    }

    static synchronized void finish(boolean isReceived) throws Exception {
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = (cpu() - cpuBefore) / 1e9;
        double peak = 0;
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM")) {
                peak = Long.parseLong(line.replaceAll("[^0-9]", "")) / 1000.0;
            }
        }
        if (isReceived) {
            System.out.printf(
                "{\"at_ns\": %s, \"cpu_s\": %f, \"seconds\": %f, \"polls_per_s\": %f}%n",
                AT, cpu, seconds, polls / seconds);
        } else {
            System.out.printf(
                "{\"records\": %d, \"total\": %d, \"seconds\": %f, \"cpu_s\": %f, \"peak_mb\": %f, \"first\": %d}%n",
                records, total, seconds, cpu, peak, first);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    public static void main(String[] told) throws Exception {
        for (int each = 1; each < Integer.parseInt(told[5]); each++) {
            Thread member = new Thread(() -> {
                try {
                    take(told);
                } catch (Exception error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
            member.setDaemon(true);
            member.start();
        }
        take(told);
    }
}
