package nova.realtime;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The log that `log.py` appends to, as a source for real-time mode: each row is all frames that were there, up to
 * `MOST` bytes, and when they were read. Options: `path` the log's folder, `query` and `side` of the reader.
 */
public final class LogSource implements TableProvider {
  static final StructType SCHEMA = StructType.fromDDL("body binary, read bigint");
  private static final int MOST = 1 << 18;
  private static final long SHORTEST_NS = 100_000, LONGEST_NS = 1_000_000;

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return SCHEMA;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new LogTable(new CaseInsensitiveStringMap(properties));
  }

  private record LogTable(CaseInsensitiveStringMap options) implements Table, SupportsRead {
    @Override
    public String name() {
      return "log " + options.get("path");
    }

    @Override
    @SuppressWarnings("deprecation")
    public StructType schema() {
      return SCHEMA;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
      return () ->
          new Scan() {
            @Override
            public StructType readSchema() {
              return SCHEMA;
            }

            @Override
            public MicroBatchStream toMicroBatchStream(String checkpoint) {
              return new Log(options.get("path"), options.get("query"), options.getInt("side", 0));
            }
          };
    }
  }

  /** A place in the log, in bytes from its beginning. */
  static final class Place extends Offset implements PartitionOffset {
    final long at;

    Place(long at) {
      this.at = at;
    }

    @Override
    public String json() {
      return Long.toString(at);
    }
  }

  private record Stretch(String path, String query, int side, long from, long to) implements InputPartition {}

  private static final class Log implements MicroBatchStream, SupportsRealTimeMode {
    private final String path;
    private final String query;
    private final int side;

    Log(String path, String query, int side) {
      this.path = path;
      this.query = query;
      this.side = side;
    }

    @Override
    public Offset initialOffset() {
      return new Place(0);
    }

    @Override
    public Offset latestOffset() {
      try (Stream<Path> files = Files.list(Path.of(path))) {
        Path last = files.filter(LogSource::isSegment).max(Path::compareTo).orElse(null);
        return new Place(last == null ? 0 : base(last) + Files.size(last));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public Offset deserializeOffset(String json) {
      return new Place(Long.parseLong(json));
    }

    /** Once the query is closing and its last batch is committed, there is no other: it waits to be stopped. */
    @Override
    public InputPartition[] planInputPartitions(Offset start) {
      Live live = Live.of(query);
      while (live.closing && !Thread.currentThread().isInterrupted()) {
        live.parked = true;
        LockSupport.parkNanos(LONGEST_NS);
      }
      if (live.closing) throw new UncheckedIOException(new InterruptedIOException("the query is closed"));
      return new InputPartition[] {new Stretch(path, query, side, ((Place) start).at, Long.MAX_VALUE)};
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return new InputPartition[] {new Stretch(path, query, side, ((Place) start).at, ((Place) end).at)};
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] offsets) {
      return (Place) offsets[0];
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return partition -> new Reader((Stretch) partition);
    }

    /** Note how far this reader will never go back, for `log.py` to drop what nobody needs. */
    @Override
    public void commit(Offset end) {
      Path folder = Path.of(path, "readers");
      String name = query + "-" + side;
      try {
        Files.createDirectories(folder);
        Path draft = Files.writeString(folder.resolve("." + name), end.json());
        Files.move(draft, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public void stop() {}
  }

  private static boolean isSegment(Path file) {
    return file.getFileName().toString().endsWith(".log");
  }

  private static long base(Path file) {
    String name = file.getFileName().toString();
    return Long.parseLong(name.substring(0, name.length() - 4));
  }

  private static final class Reader implements SupportsRealTimeRead<InternalRow>, PartitionReader<InternalRow> {
    private final Stretch stretch;
    private final Live live;
    private long at;
    private long segment = -1;
    private FileChannel file;
    private ByteBuffer ahead = ByteBuffer.allocate(MOST).order(ByteOrder.LITTLE_ENDIAN);
    private InternalRow row;

    Reader(Stretch stretch) {
      this.stretch = stretch;
      live = Live.of(stretch.query());
      at = stretch.from();
      live.position.set(stretch.side(), at);
      live.begun.incrementAndGet();
    }

    @Override
    public PartitionOffset getOffset() {
      return new Place(at);
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
      return nextWithTimeout(timeoutMs);
    }

    @Override
    public RecordStatus nextWithTimeout(Long timeoutMs) throws IOException {
      long end = System.nanoTime() + timeoutMs * 1_000_000;
      long pause = SHORTEST_NS;
      while (!live.closing) {
        if (next()) return RecordStatus.newStatusWithoutArrivalTime(true);
        if (System.nanoTime() >= end) break;
        LockSupport.parkNanos(pause);
        pause = Math.min(2 * pause, LONGEST_NS);
      }
      return RecordStatus.newStatusWithoutArrivalTime(false);
    }

    @Override
    public boolean next() throws IOException {
      if (at >= stretch.to()) return false;
      byte[] body = frames();
      if (body == null) return false;
      at += body.length;
      live.position.set(stretch.side(), at);
      row = new GenericInternalRow(new Object[] {body, Numbers.nowUs()});
      return true;
    }

    /** The whole frames at this place, at most MOST bytes of them (but one at least); null where there is none yet. */
    private byte[] frames() throws IOException {
      if (file == null && !open()) return null;
      int got = file.read(ahead.clear(), at - segment);
      if (got < 4) {
        Path after = Path.of(stretch.path(), name(at));
        if (got <= 0 && at > segment && Files.exists(after)) {
          file.close();
          file = null;
        }
        return null;
      }
      int whole = 0;
      while (whole + 4 <= got) {
        int size = 4 + ahead.getInt(whole);
        if (whole == 0 && size > ahead.capacity()) {
          ahead = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
          return null;
        }
        if (whole + size > got || at + whole >= stretch.to()) break;
        whole += size;
      }
      if (whole == 0) return null;
      byte[] body = new byte[whole];
      ahead.get(0, body);
      return body;
    }

    private boolean open() throws IOException {
      try (Stream<Path> files = Files.list(Path.of(stretch.path()))) {
        segment = files.filter(LogSource::isSegment).mapToLong(LogSource::base).filter(b -> b <= at).max().orElse(-1);
      }
      if (segment < 0) {
        if (at > 0) throw new IOException("the log " + stretch.path() + " lacks what was at byte " + at);
        return false;
      }
      file = FileChannel.open(Path.of(stretch.path(), name(segment)), StandardOpenOption.READ);
      return true;
    }

    private static String name(long base) {
      return String.format("%020d.log", base);
    }

    @Override
    public InternalRow get() {
      return row;
    }

    @Override
    public void close() throws IOException {
      if (file != null) file.close();
    }
  }
}
