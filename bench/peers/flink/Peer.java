import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Flink's DataStream API in a local mini cluster: KafkaSource, keyBy, a ValueState in RocksDB, exactly-once checkpoints. The source ends where the
 * topic ended at the start; the job returns when the checkpoint behind its last record is complete.
 */
public class Peer {
  public static class View {
    public String user;
    public String page;
    public long ms;
    public long n;
  }

  static final AtomicLong began = new AtomicLong();
  static final AtomicLong checkpoints = new AtomicLong();
  static final Map<String, long[]> totals = new ConcurrentHashMap<>();

  static String env(String name, String otherwise) {
    String v = System.getenv(name);
    return v == null || v.isEmpty() ? otherwise : v;
  }

  /** A record's bytes become (user, n) in the source's task. */
  public static class Parse implements DeserializationSchema<Tuple2<String, Long>> {
    transient ObjectReader json;

    @Override
    public void open(InitializationContext c) {
      json = new ObjectMapper().readerFor(View.class);
    }

    @Override
    public Tuple2<String, Long> deserialize(byte[] b) throws IOException {
      if (began.get() == 0) {
        began.compareAndSet(0, System.currentTimeMillis());
      }
      View v = json.readValue(b);
      return Tuple2.of(v.user, v.n);
    }

    @Override
    public boolean isEndOfStream(Tuple2<String, Long> t) {
      return false;
    }

    @Override
    public TypeInformation<Tuple2<String, Long>> getProducedType() {
      return Types.TUPLE(Types.STRING, Types.LONG);
    }
  }

  public static class Count extends KeyedProcessFunction<String, Tuple2<String, Long>, String> implements CheckpointListener {
    transient ValueState<Tuple2<Long, Long>> total;

    @Override
    public void open(OpenContext c) {
      total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.TUPLE(Types.LONG, Types.LONG)));
    }

    @Override
    public void processElement(Tuple2<String, Long> v, Context c, Collector<String> out) throws Exception {
      Tuple2<Long, Long> t = total.value();
      if (t == null) {
        t = Tuple2.of(0L, 0L);
        c.timerService().registerEventTimeTimer(Long.MAX_VALUE); // fires at the source's end, to read the total out
      }
      t.f0++;
      t.f1 += v.f1;
      total.update(t);
    }

    @Override
    public void onTimer(long time, OnTimerContext c, Collector<String> out) throws Exception {
      Tuple2<Long, Long> t = total.value();
      totals.put(c.getCurrentKey(), new long[] {t.f0, t.f1});
    }

    @Override
    public void notifyCheckpointComplete(long id) {
      checkpoints.set(id);
    }
  }

  public static void main(String[] args) throws Exception {
    Path work = Path.of(env("WORK", ".")).toAbsolutePath();
    Files.createDirectories(work.resolve("tmp"));
    Files.createDirectories(work.resolve("rocksdb"));
    Configuration c = new Configuration();
    c.setString("state.backend.type", "rocksdb");
    c.setString("execution.checkpointing.incremental", "true");
    c.setString("execution.checkpointing.storage", "filesystem");
    c.setString("execution.checkpointing.dir", work.resolve("checkpoints").toUri().toString());
    c.setString("io.tmp.dirs", work.resolve("tmp").toString());
    c.setString("state.backend.rocksdb.localdir", work.resolve("rocksdb").toString());
    c.setString("taskmanager.memory.managed.size", env("MANAGED", "512m"));
    c.setString("taskmanager.numberOfTaskSlots", "2");
    StreamExecutionEnvironment e = StreamExecutionEnvironment.createLocalEnvironment(2, c);
    e.enableCheckpointing(Long.parseLong(env("CHECKPOINT_MS", "1000")), CheckpointingMode.EXACTLY_ONCE);
    KafkaSource<Tuple2<String, Long>> source = KafkaSource.<Tuple2<String, Long>>builder()
        .setBootstrapServers(env("BOOTSTRAP", "127.0.0.1:9092"))
        .setTopics(env("TOPIC", "views"))
        .setGroupId("bench-flink")
        .setStartingOffsets(OffsetsInitializer.earliest())
        .setBounded(OffsetsInitializer.latest())
        .setValueOnlyDeserializer(new Parse())
        .build();
    e.fromSource(source, WatermarkStrategy.noWatermarks(), "views").keyBy(t -> t.f0, Types.STRING).process(new Count()).returns(Types.STRING)
        .sinkTo(new DiscardingSink<>());
    e.execute("bench");
    long commit = System.currentTimeMillis();
    long records = 0;
    for (long[] t : totals.values()) {
      records += t[0];
    }
    System.out.printf("RESULT {\"records\":%d,\"first\":%d,\"commit\":%d,\"batches\":%d}%n", records, began.get(), commit, checkpoints.get());
    System.out.flush();
    try (PrintWriter w = new PrintWriter(Files.newBufferedWriter(Path.of(env("TOTALS", "totals.txt"))))) {
      for (Map.Entry<String, long[]> t : totals.entrySet()) {
        w.println(t.getKey() + " " + t.getValue()[0] + " " + t.getValue()[1]);
      }
    }
    System.exit(0);
  }
}
