import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.trident.KafkaTridentSpoutConfig;
import org.apache.storm.kafka.spout.trident.KafkaTridentSpoutOpaque;
import org.apache.storm.task.IMetricsContext;
import org.apache.storm.trident.TridentTopology;
import org.apache.storm.trident.operation.BaseFunction;
import org.apache.storm.trident.operation.CombinerAggregator;
import org.apache.storm.trident.operation.TridentCollector;
import org.apache.storm.trident.state.OpaqueValue;
import org.apache.storm.trident.state.State;
import org.apache.storm.trident.state.StateFactory;
import org.apache.storm.trident.state.map.IBackingMap;
import org.apache.storm.trident.state.map.OpaqueMap;
import org.apache.storm.trident.tuple.TridentTuple;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.RocksIterator;
import org.rocksdb.WriteBatch;
import org.rocksdb.WriteOptions;

/**
 * Storm Trident in a LocalCluster whose coordination is a real ZooKeeper's: opaque Kafka spout, groupBy, persistentAggregate into an
 * opaque map over RocksDB. Each transaction is one synced write in each partition of the state.
 */
public class Peer {
  public static class View {
    public String user;
    public String page;
    public long ms;
    public long n;
  }

  static final AtomicLong began = new AtomicLong();
  static final AtomicLong counted = new AtomicLong(); // and synced
  static final AtomicLong lastWrite = new AtomicLong();
  static final Set<Long> txids = ConcurrentHashMap.newKeySet();
  static final ConcurrentLinkedQueue<Rocks> stores = new ConcurrentLinkedQueue<>();

  static String env(String name, String otherwise) {
    String v = System.getenv(name);
    return v == null || v.isEmpty() ? otherwise : v;
  }

  public static class Parse extends BaseFunction {
    transient ObjectReader json;

    @Override
    public void execute(TridentTuple tuple, TridentCollector out) {
      if (json == null) {
        json = new ObjectMapper().readerFor(View.class);
      }
      if (began.get() == 0) {
        began.compareAndSet(0, System.currentTimeMillis());
      }
      try {
        View v = json.readValue(tuple.getBinary(0));
        out.emit(new Values(v.user, v.n));
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  /** Count and sum. */
  public static class CountSum implements CombinerAggregator<long[]> {
    @Override
    public long[] init(TridentTuple tuple) {
      return new long[] {1, tuple.getLong(0)};
    }

    @Override
    public long[] combine(long[] a, long[] b) {
      return new long[] {a[0] + b[0], a[1] + b[1]};
    }

    @Override
    public long[] zero() {
      return new long[2];
    }
  }

  /** One partition of the state. A value is the txid, the current count and sum, and the previous ones if there are any. */
  static final class Rocks implements IBackingMap<OpaqueValue> {
    final RocksDB db;
    final WriteOptions synced = new WriteOptions().setSync(true);

    Rocks(Path dir) throws Exception {
      RocksDB.loadLibrary();
      Files.createDirectories(dir);
      db = RocksDB.open(new Options().setCreateIfMissing(true), dir.toString());
    }

    static List<byte[]> bytes(List<List<Object>> keys) {
      List<byte[]> out = new ArrayList<>(keys.size());
      for (List<Object> k : keys) {
        out.add(((String) k.get(0)).getBytes(StandardCharsets.UTF_8));
      }
      return out;
    }

    @Override
    public List<OpaqueValue> multiGet(List<List<Object>> keys) {
      List<OpaqueValue> out = new ArrayList<>(keys.size());
      try {
        for (byte[] v : db.multiGetAsList(bytes(keys))) {
          if (v == null) {
            out.add(null);
            continue;
          }
          ByteBuffer b = ByteBuffer.wrap(v);
          long txid = b.getLong();
          long[] current = {b.getLong(), b.getLong()};
          long[] previous = b.hasRemaining() ? new long[] {b.getLong(), b.getLong()} : null;
          out.add(new OpaqueValue<>(txid, current, previous));
        }
      } catch (RocksDBException e) {
        throw new IllegalStateException(e);
      }
      return out;
    }

    @Override
    public void multiPut(List<List<Object>> keys, List<OpaqueValue> values) {
      List<byte[]> ks = bytes(keys);
      long more = 0;
      try (WriteBatch batch = new WriteBatch()) {
        for (int i = 0; i < ks.size(); i++) {
          OpaqueValue v = values.get(i);
          long[] current = (long[]) v.getCurr();
          long[] previous = (long[]) v.getPrev();
          ByteBuffer b = ByteBuffer.allocate(previous == null ? 24 : 40).putLong(v.getCurrTxid()).putLong(current[0]).putLong(current[1]);
          if (previous != null) {
            b.putLong(previous[0]).putLong(previous[1]);
          }
          batch.put(ks.get(i), b.array());
          more += current[0] - (previous == null ? 0 : previous[0]);
          txids.add(v.getCurrTxid());
        }
        db.write(synced, batch);
      } catch (RocksDBException e) {
        throw new IllegalStateException(e);
      }
      lastWrite.set(System.currentTimeMillis());
      counted.addAndGet(more);
    }
  }

  public static class Factory implements StateFactory {
    final String dir;

    Factory(String dir) {
      this.dir = dir;
    }

    @Override
    public State makeState(Map<String, Object> conf, IMetricsContext metrics, int partition, int partitions) {
      try {
        Rocks r = new Rocks(Path.of(dir, Integer.toString(partition)));
        stores.add(r);
        return OpaqueMap.build(r);
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
  }

  public static void main(String[] args) throws Exception {
    long n = Long.parseLong(env("N", "4000000"));
    int parallelism = Integer.parseInt(env("PARALLELISM", "2"));
    KafkaTridentSpoutConfig<byte[], byte[]> spout = new KafkaTridentSpoutConfig.Builder<byte[], byte[]>(env("BOOTSTRAP", "127.0.0.1:9092"), env("TOPIC", "views"))
        .setProp(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName())
        .setProp(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class.getName())
        .setProp(ConsumerConfig.GROUP_ID_CONFIG, "bench-storm")
        .setProp(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, env("POLL_RECORDS", "10000"))
        .setProp(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, "4194304")
        .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.EARLIEST)
        .setRecordTranslator(r -> new Values((Object) r.value()), new Fields("value"))
        .build();
    TridentTopology topology = new TridentTopology();
    topology.newStream("views", new KafkaTridentSpoutOpaque<>(spout)).parallelismHint(parallelism)
        .each(new Fields("value"), new Parse(), new Fields("user", "n"))
        .project(new Fields("user", "n"))
        .groupBy(new Fields("user"))
        .persistentAggregate(new Factory(env("WORK", ".") + "/state"), new Fields("n"), new CountSum(), new Fields("total"))
        .parallelismHint(parallelism);
    Config c = new Config();
    c.setNumWorkers(1);
    c.setMaxSpoutPending(Integer.parseInt(env("PENDING", "2")));
    c.put(Config.TOPOLOGY_TRIDENT_BATCH_EMIT_INTERVAL_MILLIS, Integer.parseInt(env("EMIT_MS", "10")));
    c.put(Config.TOPOLOGY_FALL_BACK_ON_JAVA_SERIALIZATION, true);
    c.setMessageTimeoutSecs(120);
    String[] zooKeeper = env("ZK", "127.0.0.1:2181").split(":");
    LocalCluster cluster = new LocalCluster(zooKeeper[0], Long.parseLong(zooKeeper[1]));
    cluster.submitTopology("bench", c, topology.build());
    while (counted.get() < n) {
      Thread.sleep(5);
    }
    System.out.printf("RESULT {\"records\":%d,\"first\":%d,\"commit\":%d,\"batches\":%d}%n", counted.get(), began.get(), lastWrite.get(), txids.size());
    System.out.flush();
    try (PrintWriter w = new PrintWriter(Files.newBufferedWriter(Path.of(env("TOTALS", "totals.txt"))))) {
      for (Rocks r : stores) {
        try (RocksIterator it = r.db.newIterator()) {
          for (it.seekToFirst(); it.isValid(); it.next()) {
            ByteBuffer b = ByteBuffer.wrap(it.value());
            b.getLong();
            w.println(new String(it.key(), StandardCharsets.UTF_8) + " " + b.getLong() + " " + b.getLong());
          }
        }
      }
    }
    Runtime.getRuntime().halt(0); // an orderly end of LocalCluster takes long, and nothing is left to lose
  }
}
