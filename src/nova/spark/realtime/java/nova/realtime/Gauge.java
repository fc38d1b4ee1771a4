package nova.realtime;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.LongAdder;

/** Counts of one query, and how long its results took; the driver asks for all of them now and then. */
public final class Gauge {
  static final String[] STAGES = {"total", "source", "routing", "shuffle", "join", "sink"};
  static final int TOTAL = 0, SOURCE = 1, ROUTING = 2, SHUFFLE = 3, JOIN = 4, SINK = 5;

  private final LongAdder[] tuples = {new LongAdder(), new LongAdder()};
  private final LongAdder[] strangers = {new LongAdder(), new LongAdder()};
  private final Map<Integer, LongAdder> copies = new ConcurrentHashMap<>();
  private final Map<Integer, LongAdder> results = new ConcurrentHashMap<>();
  /** Copies by batch and by the end of their bucket (µs). */
  private final ConcurrentSkipListMap<Long, Map<Long, LongAdder>> buckets = new ConcurrentSkipListMap<>();
  private final AtomicLong firstTime = new AtomicLong(Long.MAX_VALUE);
  private final AtomicLong lastTime = new AtomicLong(Long.MIN_VALUE);
  private final Histogram[] took = new Histogram[STAGES.length];
  private volatile double[] clock;
  private volatile boolean published;

  Gauge() {
    for (int stage = 0; stage < took.length; stage++) took[stage] = new Histogram();
  }

  /** Events of `originUs` were due at `beganUs`, later ones at `speed` times their own speed. */
  public void clock(double originUs, double beganUs, double speed) {
    clock = new double[] {originUs, beganUs, speed};
  }

  /** Results are out when the driver has published them: it counts how long that took. */
  public void published() {
    published = true;
  }

  boolean outHere() {
    return !published;
  }

  boolean timed() {
    return clock != null;
  }

  long dueUs(long eventUs) {
    double[] c = clock;
    return (long) (c[1] + (eventUs - c[0]) / c[2]);
  }

  void read(int side, int rows, int unknown, long earliest, long latest) {
    tuples[side].add(rows);
    strangers[side].add(unknown);
    if (earliest <= latest) {
      firstTime.accumulateAndGet(earliest, Math::min);
      lastTime.accumulateAndGet(latest, Math::max);
    }
  }

  void routed(Map<Integer, int[]> byNode, long batch, Map<Long, int[]> byBucket) {
    byNode.forEach((node, n) -> copies.computeIfAbsent(node, k -> new LongAdder()).add(n[0]));
    Map<Long, LongAdder> open = buckets.computeIfAbsent(batch, k -> new ConcurrentHashMap<>());
    byBucket.forEach((end, n) -> open.computeIfAbsent(end, k -> new LongAdder()).add(n[0]));
    while (buckets.size() > 4) buckets.pollFirstEntry();
  }

  void joined(int node, int rows) {
    results.computeIfAbsent(node, k -> new LongAdder()).add(rows);
  }

  void took(int stage, long us, int rows) {
    took[stage].add(us, rows);
  }

  /** Everything so far as JSON. */
  public String told() {
    StringBuilder out = new StringBuilder(4096).append('{');
    out.append("\"tuples\":[").append(tuples[0].sum()).append(',').append(tuples[1].sum()).append(']');
    out.append(",\"strangers\":[").append(strangers[0].sum()).append(',').append(strangers[1].sum()).append(']');
    out.append(",\"first_time\":").append(firstTime.get() == Long.MAX_VALUE ? "null" : firstTime.toString());
    out.append(",\"last_time\":").append(lastTime.get() == Long.MIN_VALUE ? "null" : lastTime.toString());
    tell(out.append(",\"copies\":"), copies);
    tell(out.append(",\"results\":"), results);
    out.append(",\"buckets\":{");
    String comma = "";
    for (Map.Entry<Long, Map<Long, LongAdder>> batch : buckets.entrySet()) {
      tell(out.append(comma).append('"').append(batch.getKey()).append("\":"), batch.getValue());
      comma = ",";
    }
    out.append('}');
    for (int stage = 0; stage < STAGES.length; stage++) {
      took[stage].tell(out.append(",\"").append(STAGES[stage]).append("\":"));
    }
    return out.append('}').toString();
  }

  private static <K> void tell(StringBuilder out, Map<K, LongAdder> counts) {
    out.append('{');
    String comma = "";
    for (Map.Entry<K, LongAdder> entry : new TreeMap<>(counts).entrySet()) {
      out.append(comma).append('"').append(entry.getKey()).append("\":").append(entry.getValue().sum());
      comma = ",";
    }
    out.append('}');
  }

  /** Microseconds, to about a hundredth of themselves: 64 steps for each doubling. */
  static final class Histogram {
    private static final int STEPS = 64;
    private final AtomicLongArray counts = new AtomicLongArray(STEPS * 40);

    void add(long us, int rows) {
      counts.addAndGet(place(Math.max(us, 0)), rows);
    }

    private int place(long us) {
      int doubling = Math.max(0, 64 - Long.numberOfLeadingZeros(us) - 7);
      return (int) Math.min(doubling * (long) STEPS + (us >>> doubling), counts.length() - 1);
    }

    /** Middle of a step's microseconds. */
    private static double middle(int place) {
      if (place < 2 * STEPS) return place;
      int doubling = place / STEPS - 1;
      return ((long) (place - doubling * STEPS) << doubling) + (1L << doubling) / 2.0;
    }

    void tell(StringBuilder out) {
      out.append('{');
      String comma = "";
      for (int place = 0; place < counts.length(); place++) {
        long n = counts.get(place);
        if (n == 0) continue;
        out.append(comma).append('"').append(middle(place)).append("\":").append(n);
        comma = ",";
      }
      out.append('}');
    }
  }
}
