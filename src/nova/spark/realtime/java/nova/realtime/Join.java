package nova.realtime;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Symmetric hash join: the packets of each side of a group are a list in Spark's state; a new packet's tuples meet those
 * of the other side and join their own. Tables in memory are a cache of the lists, made again from them when needed.
 * A group goes when the watermark has passed its bucket.
 */
final class Join extends StatefulProcessor<Long, Row, byte[]> {
  /** Tuples of one task that stay in memory, least recently used groups first out. */
  private static final int CACHED = 400_000;
  /** Results of one frame, at most: a hot window's pairs must not fill the memory at once. */
  private static final int MOST = 65_536;

  /** Columns of results that all have. */
  private static final int OWN = 8;

  private final Shape shape;
  private final UTF8String query;
  private transient ListState<byte[]>[] sides;
  private transient LinkedHashMap<Long, Table> tables;
  private transient int cached;
  private transient Live live;

  /** `query`: its name in results. */
  Join(Shape shape, String query) {
    this.shape = shape;
    this.query = UTF8String.fromString(query);
  }

  /** A tuple: a row of a packet. */
  private record Tuple(Frame packet, int row) {}

  /** What two tuples must have in common. */
  private static final class Key {
    private final long meeting;
    private final long window;
    private final Object[] on;

    Key(long meeting, long window, Object[] on) {
      this.meeting = meeting;
      this.window = window;
      this.on = on;
    }

    @Override
    public int hashCode() {
      return Long.hashCode(Numbers.mix(meeting, window)) * 31 + Arrays.hashCode(on);
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Key k && meeting == k.meeting && window == k.window && Arrays.equals(on, k.on);
    }
  }

  /** Tuples of one group in memory. */
  private static final class Table {
    final Map<Key, List<Tuple>[]> bins = new HashMap<>();
    int tuples;
  }

  @Override
  @SuppressWarnings({"unchecked", "rawtypes"})
  public void init(OutputMode mode, TimeMode time) {
    sides = new ListState[2];
    sides[0] = getHandle().getListState("left", Encoders.BINARY(), TTLConfig.NONE());
    sides[1] = getHandle().getListState("right", Encoders.BINARY(), TTLConfig.NONE());
    tables = new LinkedHashMap<>(16, 0.75f, true);
    live = Live.of(shape.query);
    live.begun.incrementAndGet();
  }

  @Override
  public Iterator<byte[]> handleInputRows(Long group, Iterator<Row> rows, TimerValues timers) {
    List<byte[]> out = new ArrayList<>(1);
    if (endMs(group) <= timers.getCurrentWatermarkInMs()) { // too late: its partners may be gone
      while (rows.hasNext()) rows.next();
      return CollectionConverters.asScala(out.iterator());
    }
    Table table = tables.get(group);
    while (rows.hasNext()) {
      long begun = Numbers.nowUs();
      Row row = rows.next();
      int side = row.getInt(2);
      byte[] body = (byte[]) row.get(3);
      Frame packet = Frame.all(body, shape.packet(side)).get(0);
      if (packet.rows == 0) continue;
      if (table == null) table = load(group);
      sides[side].appendValue(body);
      Results results = new Results(packet, begun, out);
      for (int i = 0; i < packet.rows; i++) {
        Tuple tuple = new Tuple(packet, i);
        for (Tuple partner : add(table, side, tuple)) {
          results.pair(side == 0 ? tuple : partner, side == 0 ? partner : tuple);
        }
      }
      results.close();
    }
    if (table != null) live.state.put(group, table.tuples);
    trim();
    return CollectionConverters.asScala(out.iterator());
  }

  /** Results of one packet, as frames. */
  private final class Results {
    private final Frame packet;
    private final long begun;
    private final List<byte[]> out;
    private Frame.Builder frame = new Frame.Builder(shape.result);
    private final Map<Integer, int[]> byNode = new HashMap<>();

    Results(Frame packet, long begun, List<byte[]> out) {
      this.packet = packet;
      this.begun = begun;
      this.out = out;
    }

    void pair(Tuple left, Tuple right) {
      long time = left.packet.number(3, left.row);
      Routes routes = live.timeline().of(Math.floorDiv(time, shape.windowUs));
      int node = routes.node[(int) left.packet.number(0, left.row)];
      InternalRow selected = null;
      if (shape.after != null) {
        selected = shape.after.of(contract(left, right, node, time));
        if (selected == null) return;
      }
      frame.put(0, node).put(7, Math.floorDiv(time, shape.windowUs));
      for (int side = 0; side < 2; side++) {
        Tuple tuple = side == 0 ? left : right;
        int born = shape.side(side).born;
        frame.put(1 + side, tuple.packet.number(1, tuple.row)).put(3 + side, tuple.packet.number(2, tuple.row));
        frame.put(5 + side, tuple.packet.number(born < 0 ? 3 : 4 + born, tuple.row));
        if (selected != null) continue;
        int first = OWN + side * shape.side(0).carried.length();
        for (int column = 0; column < shape.side(side).carried.length(); column++) {
          frame.copy(first + column, tuple.packet, 4 + column, tuple.row);
        }
      }
      for (int column = OWN; selected != null && column < shape.result.length(); column++) {
        shape.after.put(frame, column, selected, column - OWN);
      }
      frame.next();
      byNode.computeIfAbsent(node, k -> new int[1])[0]++;
      if (frame.rows() == MOST) close();
    }

    /** A pair in the columns of results: the contract's, then what else left and right carry. */
    private Object[] contract(Tuple left, Tuple right, int node, long time) {
      Object[] values = new Object[shape.after.width()];
      long start = Math.floorDiv(time, shape.windowUs) * shape.windowUs;
      values[0] = query;
      values[1] = start;
      values[2] = start + shape.windowUs;
      values[9] = live.node(node);
      int next = 10;
      for (int side = 0; side < 2; side++) {
        Frame packet = (side == 0 ? left : right).packet;
        int row = (side == 0 ? left : right).row;
        values[3 + side] = live.sources().name((int) packet.number(2, row));
        values[5 + side] = packet.number(3, row);
        values[7 + side] = shape.after.value(7 + side, packet, 4, row);
        for (int column = 1; column < shape.side(side).carried.length(); column++, next++) {
          values[next] = shape.after.value(next, packet, 4 + column, row);
        }
      }
      return values;
    }

    void close() {
      if (frame.rows() == 0) return;
      long done = Numbers.nowUs();
      out.add(frame.build(packet.first, done));
      live.gauge.took(Gauge.ROUTING, packet.stamp - packet.first, frame.rows());
      live.gauge.took(Gauge.SHUFFLE, begun - packet.stamp, frame.rows());
      live.gauge.took(Gauge.JOIN, done - begun, frame.rows());
      byNode.forEach((node, n) -> live.gauge.joined(node, n[0]));
      byNode.clear();
      frame = new Frame.Builder(shape.result);
    }
  }

  @Override
  public Iterator<byte[]> handleExpiredTimer(Long group, TimerValues timers, ExpiredTimerInfo timer) {
    sides[0].clear();
    sides[1].clear();
    live.state.remove(group);
    Table gone = tables.remove(group);
    if (gone != null) cached -= gone.tuples;
    return CollectionConverters.asScala(java.util.Collections.<byte[]>emptyIterator());
  }

  /** The group's table from its lists. A group that has none yet gets a timer: it goes when its bucket is over. */
  private Table load(long group) {
    Table table = new Table();
    tables.put(group, table);
    boolean known = false;
    for (int side = 0; side < 2; side++) {
      Iterator<byte[]> packets = sides[side].get();
      while (packets.hasNext()) {
        known = true;
        Frame packet = Frame.all(packets.next(), shape.packet(side)).get(0);
        for (int i = 0; i < packet.rows; i++) add(table, side, new Tuple(packet, i));
      }
    }
    if (!known) getHandle().registerTimer(endMs(group));
    return table;
  }

  /** When a group's bucket is over. */
  private long endMs(long group) {
    return Math.floorDiv(((group >> Router.SALT) + 1) * shape.bucketUs, 1000L);
  }

  /** Put a tuple into its bin; returns those of the other side there. */
  private List<Tuple> add(Table table, int side, Tuple tuple) {
    Frame packet = tuple.packet;
    int[] on = shape.side(side).on;
    Object[] values = new Object[on.length];
    for (int i = 0; i < on.length; i++) {
      switch (shape.side(side).carried.charAt(on[i])) {
        case 's' -> values[i] = java.nio.ByteBuffer.wrap(packet.bytes(4 + on[i], tuple.row));
        case 'd' -> values[i] = Double.doubleToLongBits(packet.real(4 + on[i], tuple.row) + 0.0);
        default -> values[i] = packet.number(4 + on[i], tuple.row);
      }
    }
    long window = Math.floorDiv(packet.number(3, tuple.row), shape.windowUs);
    Key key = new Key(packet.number(0, tuple.row), window, values);
    List<Tuple>[] bin = table.bins.computeIfAbsent(key, k -> bin());
    bin[side].add(tuple);
    table.tuples++;
    cached++;
    return bin[1 - side];
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static List<Tuple>[] bin() {
    return new List[] {new ArrayList<Tuple>(2), new ArrayList<Tuple>(2)};
  }

  private void trim() {
    java.util.Iterator<Table> oldest = tables.values().iterator();
    while (cached > CACHED && tables.size() > 1) {
      cached -= oldest.next().tuples;
      oldest.remove();
    }
  }
}
