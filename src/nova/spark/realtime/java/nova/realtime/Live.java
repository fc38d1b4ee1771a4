package nova.realtime;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A query that runs in this JVM: its plans, its counts, and whether it is to come to an end. Tasks find it by name; the
 * driver talks to it from Python.
 */
public final class Live {
  private static final Map<String, Live> ALL = new ConcurrentHashMap<>();
  private static final long NONE = Long.MAX_VALUE;

  private volatile Sources sources = new Sources(new long[0], new UTF8String[0]);
  private volatile UTF8String[] nodes = {};
  private volatile Timeline timeline = new Timeline(new long[0], new Routes[0]);
  private long lastWindow = Long.MIN_VALUE;
  /** First window of a switch that is being written down: its tuples wait. */
  private long reserved = NONE;
  volatile boolean closing;
  /** Whether the last batch of a query that is closing is committed. */
  volatile boolean parked;
  /** Tasks that have begun: two readers, and those that join. */
  final AtomicInteger begun = new AtomicInteger();
  /** How far each side's log was read (bytes). */
  final AtomicLongArray position = new AtomicLongArray(2);
  final Gauge gauge = new Gauge();
  /** Tuples in the state, by group. */
  final Map<Long, Integer> state = new ConcurrentHashMap<>();

  /** Plans by the first window they hold for. */
  static final class Timeline {
    final long[] first;
    final Routes[] routes;

    Timeline(long[] first, Routes[] routes) {
      this.first = first;
      this.routes = routes;
    }

    Routes of(long window) {
      int epoch = routes.length - 1;
      while (epoch > 0 && first[epoch] > window) epoch--;
      return routes[epoch];
    }
  }

  public static Live open(String query) {
    Live live = new Live();
    ALL.put(query, live);
    return live;
  }

  public static void forget(String query) {
    ALL.remove(query);
  }

  static Live of(String query) {
    Live live = ALL.get(query);
    if (live == null) throw new IllegalStateException("the query " + query + " does not run in this JVM");
    return live;
  }

  public Gauge gauge() {
    return gauge;
  }

  public long stateTuples() {
    return state.values().stream().mapToLong(Integer::longValue).sum();
  }

  public boolean parked() {
    return parked;
  }

  public int begun() {
    return begun.get();
  }

  public long position(int side) {
    return position.get(side);
  }

  /** Sources by row; rows of newcomers follow. */
  static final class Sources {
    private final long[] hash;
    private final UTF8String[] name;

    Sources(long[] hash, UTF8String[] name) {
      this.hash = hash;
      this.name = name;
    }

    boolean know(long row) {
      return row >= 0 && row < hash.length;
    }

    /** The hash of its id. */
    long hash(int row) {
      return hash[row];
    }

    UTF8String name(int row) {
      return name[row];
    }
  }

  /** A frame with the hashes and ids of the sources, one with the ids of the nodes. */
  public void names(byte[] told, byte[] hosts) {
    Frame frame = Frame.all(told, "ls").get(0);
    long[] hash = new long[frame.rows];
    for (int i = 0; i < hash.length; i++) hash[i] = frame.number(0, i);
    sources = new Sources(hash, texts(frame, 1));
    nodes = texts(Frame.all(hosts, "s").get(0), 0);
  }

  private static UTF8String[] texts(Frame frame, int column) {
    UTF8String[] texts = new UTF8String[frame.rows];
    for (int i = 0; i < texts.length; i++) texts[i] = UTF8String.fromBytes(frame.bytes(column, i));
    return texts;
  }

  Sources sources() {
    return sources;
  }

  UTF8String node(int row) {
    return nodes[row];
  }

  /** Readers stop at once, so that the batch ends and is committed; a batch that begins afterwards reads nothing. */
  public synchronized void close() {
    closing = true;
    notifyAll();
  }

  /**
   * Before tuples up to `window` are routed: what holds for them. Whoever comes after a switch sees it, whoever came
   * before has only older windows; a window of a switch that is being written down waits until it is. A switch that
   * could not be written down ends the query: nobody knows whether it holds.
   */
  synchronized Timeline enter(long window) throws InterruptedException {
    while (window >= reserved) {
      if (closing) throw new InterruptedException("a switch of plans was not written down");
      wait();
    }
    lastWindow = Math.max(lastWindow, window);
    return timeline;
  }

  Timeline timeline() {
    return timeline;
  }

  /** The first window, not before `from`, that no tuple was routed for. Its tuples wait until `add`. */
  public synchronized long reserve(long from) {
    reserved = Math.max(from, lastWindow == Long.MIN_VALUE ? Long.MIN_VALUE + 1 : lastWindow + 1);
    return reserved;
  }

  /** A plan that holds from a window on. */
  public synchronized void add(long firstWindow, String file) throws IOException {
    int n = timeline.first.length;
    long[] first = Arrays.copyOf(timeline.first, n + 1);
    Routes[] routes = Arrays.copyOf(timeline.routes, n + 1);
    first[n] = firstWindow;
    routes[n] = new Routes(Path.of(file));
    timeline = new Timeline(first, routes);
    reserved = NONE;
    notifyAll();
  }

  public synchronized long lastWindow() {
    return lastWindow;
  }

  /** Windows up to this one were routed before the query was started again. */
  public synchronized void routedUpTo(long window) {
    lastWindow = Math.max(lastWindow, window);
  }
}
