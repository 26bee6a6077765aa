import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Kafka Streams, exactly_once_v2: views are keyed by user through a repartition topic, and counted and summed in RocksDB with a changelog.
 * All is committed when the group's offsets have passed the last repartitioned record that was added up, in every partition.
 */
public class Peer {
  public static class View {
    public String user;
    public String page;
    public long ms;
    public long n;
  }

  static final class Total {
    final long count;
    final long sum;

    Total(long count, long sum) {
      this.count = count;
      this.sum = sum;
    }
  }

  static final Serde<Total> TOTAL = Serdes.serdeFrom(
      (topic, t) -> t == null ? null : ByteBuffer.allocate(16).putLong(t.count).putLong(t.sum).array(),
      (topic, b) -> {
        if (b == null) {
          return null;
        }
        ByteBuffer buf = ByteBuffer.wrap(b);
        return new Total(buf.getLong(), buf.getLong());
      });

  static final int MOST_PARTITIONS = 1024;
  static final AtomicLong began = new AtomicLong();
  static final LongAdder added = new LongAdder();
  static final AtomicLongArray behind = new AtomicLongArray(MOST_PARTITIONS); // offset behind the last record, by partition

  /** Notes where a partition of the repartition topic stands. */
  static final class Watch implements FixedKeyProcessor<String, Long, Long> {
    FixedKeyProcessorContext<String, Long> context;

    @Override
    public void init(FixedKeyProcessorContext<String, Long> c) {
      context = c;
    }

    @Override
    public void process(FixedKeyRecord<String, Long> r) {
      context.recordMetadata().ifPresent(m -> behind.lazySet(m.partition(), m.offset() + 1));
      context.forward(r);
      added.increment();
    }
  }

  static String env(String name, String otherwise) {
    String v = System.getenv(name);
    return v == null || v.isEmpty() ? otherwise : v;
  }

  public static void main(String[] args) throws Exception {
    String brokers = env("BOOTSTRAP", "127.0.0.1:9092");
    String app = env("APP", "bench");
    long n = Long.parseLong(env("N", "4000000"));
    Properties p = new Properties();
    p.put(StreamsConfig.APPLICATION_ID_CONFIG, app);
    p.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, brokers);
    p.put(StreamsConfig.STATE_DIR_CONFIG, env("WORK", ".") + "/state");
    p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, env("COMMIT_MS", "100"));
    p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, env("THREADS", "2"));
    p.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    p.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");

    ThreadLocal<ObjectReader> json = ThreadLocal.withInitial(() -> new ObjectMapper().readerFor(View.class));
    StreamsBuilder b = new StreamsBuilder();
    b.stream(env("TOPIC", "views"), Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
        .map((k, v) -> {
          if (began.get() == 0) {
            began.compareAndSet(0, System.currentTimeMillis());
          }
          try {
            View view = json.get().readValue(v);
            return KeyValue.pair(view.user, view.n);
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        })
        .repartition(Repartitioned.<String, Long>as("by-user").withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
        .processValues(Watch::new)
        .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
        .aggregate(() -> new Total(0, 0), (user, x, t) -> new Total(t.count + 1, t.sum + x),
            Materialized.<String, Total, KeyValueStore<Bytes, byte[]>>as("totals").withKeySerde(Serdes.String()).withValueSerde(TOTAL));

    KafkaStreams streams = new KafkaStreams(b.build(p), p);
    streams.setUncaughtExceptionHandler(e -> {
      e.printStackTrace();
      return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
    });
    streams.start();
    while (added.sum() < n) {
      if (streams.state() == KafkaStreams.State.ERROR) {
        System.exit(1);
      }
      Thread.sleep(5);
    }
    long commit;
    try (Admin admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
      while (!committed(admin, app)) {
        Thread.sleep(10);
      }
      commit = System.currentTimeMillis();
    }
    System.out.printf("RESULT {\"records\":%d,\"first\":%d,\"commit\":%d}%n", added.sum(), began.get(), commit);
    System.out.flush();
    try (PrintWriter w = new PrintWriter(Files.newBufferedWriter(Path.of(env("TOTALS", "totals.txt"))));
        KeyValueIterator<String, Total> it =
            streams.store(StoreQueryParameters.fromNameAndType("totals", QueryableStoreTypes.<String, Total>keyValueStore())).all()) {
      while (it.hasNext()) {
        KeyValue<String, Total> e = it.next();
        w.println(e.key + " " + e.value.count + " " + e.value.sum);
      }
    }
    streams.close();
  }

  static boolean committed(Admin admin, String app) throws Exception {
    Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(app).partitionsToOffsetAndMetadata().get();
    for (int i = 0; i < MOST_PARTITIONS; i++) {
      OffsetAndMetadata m = offsets.get(new TopicPartition(app + "-by-user-repartition", i));
      if (behind.get(i) > 0 && (m == null || m.offset() < behind.get(i))) {
        return false;
      }
    }
    return true;
  }
}
