package nova.realtime;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.StructType;

/** Frames of tuples in, packets out: each holds tuples of one group, which is a bucket's windows in one join task. */
final class Router implements FlatMapFunction<Row, Row> {
  static final StructType PACKET = StructType.fromDDL("group bigint, bucket_end timestamp, side int, body binary");
  /** Bits of a group's number that are not its bucket's. */
  static final int SALT = 16;
  private static final ArrayData NO_TIMES = new GenericArrayData(new Object[0]);

  private final Shape shape;
  private final int side;
  private final Shape.Side mine;

  Router(Shape shape, int side) {
    this.shape = shape;
    this.side = side;
    mine = shape.side(side);
  }

  @Override
  public Iterator<Row> call(Row row) throws InterruptedException {
    byte[] body = (byte[]) row.get(0);
    long read = row.getLong(1);
    Live live = Live.of(shape.query);
    Live.Sources sources = live.sources();
    List<Frame> frames = Frame.all(body, mine.logged);
    long earliest = Long.MAX_VALUE, latest = Long.MIN_VALUE;
    int rows = 0, strangers = 0;
    for (Frame frame : frames) {
      rows += frame.rows;
      for (int i = 0; i < frame.rows; i++) {
        if (sources.know(frame.number(0, i))) {
          earliest = Math.min(earliest, frame.number(1, i));
          latest = Math.max(latest, frame.number(1, i));
        } else {
          strangers++; // its time says nothing: there may be none, or one that is far ahead
        }
      }
    }
    if (rows == strangers) {
      live.gauge.read(side, rows, strangers, earliest, latest);
      return Collections.emptyIterator();
    }
    if (mine.before == null) {
      live.gauge.read(side, rows, strangers, earliest, latest);
    } else { // what does not pass is not the stream's that the plan knows
      Frame passed = passing(frames, sources);
      live.gauge.read(side, strangers + passed.rows, strangers, earliest, latest);
      for (int i = 0; i < passed.rows; i++) latest = Math.max(latest, passed.number(1, i));
      frames = List.of(passed);
    }
    Live.Timeline timeline = live.enter(Math.floorDiv(latest, shape.windowUs));
    Map<Long, Frame.Builder> packets = new HashMap<>();
    Map<Integer, int[]> byNode = new HashMap<>();
    Map<Long, int[]> byBucket = new HashMap<>();
    for (Frame frame : frames) {
      for (int i = 0; i < frame.rows; i++) {
        if (sources.know(frame.number(0, i))) route(frame, i, sources, timeline, packets, byNode, byBucket);
      }
    }
    live.gauge.routed(byNode, batch(), byBucket);
    long routed = Numbers.nowUs();
    if (packets.isEmpty()) { // nothing travels, but time goes on: a packet of no tuples moves the watermark
      long group = group(Math.floorDiv(latest, shape.bucketUs), 0);
      packets.put(group, new Frame.Builder(shape.packet(side)));
    }
    List<Row> out = new ArrayList<>(packets.size());
    packets.forEach(
        (group, packet) -> {
          long endUs = ((group >> SALT) + 1) * shape.bucketUs;
          out.add(RowFactory.create(group, moment(endUs), side, packet.build(read, routed)));
        });
    return out.iterator();
  }

  /** What travels of some frames, after the columns that logs have the numbers of tuples. */
  private Frame passing(List<Frame> frames, Live.Sources sources) {
    Sql before = mine.before;
    String kinds = "ll" + mine.carried + "l";
    Frame.Builder passed = new Frame.Builder(kinds);
    Object[] values = new Object[before.width()];
    for (Frame frame : frames) {
      for (int i = 0; i < frame.rows; i++) {
        long source = frame.number(0, i);
        if (!sources.know(source)) continue;
        values[0] = sources.name((int) source);
        for (int column = 1; column < values.length; column++) values[column] = before.value(column, frame, column, i);
        InternalRow row = before.of(values);
        if (row == null) continue;
        ArrayData times = mine.born < 0 ? null : row.isNullAt(copies()) ? NO_TIMES : row.getArray(copies());
        for (int copy = 0; copy < (times == null ? 1 : times.numElements()); copy++) {
          passed.put(0, source).put(1, times == null ? row.getLong(1) : times.getLong(copy));
          for (int column = 2; column < copies(); column++) before.put(passed, column, row, column);
          passed.put(copies(), frame.first + i).next();
        }
      }
    }
    return Frame.all(passed.build(0, 0), kinds).get(0);
  }

  /** Place of the times of copies among the columns that pass, and of tuples' numbers in the frame of those. */
  private int copies() {
    return 2 + mine.carried.length();
  }

  private void route(
      Frame frame, int row, Live.Sources sources, Live.Timeline timeline,
      Map<Long, Frame.Builder> packets, Map<Integer, int[]> byNode, Map<Long, int[]> byBucket) {
    int source = (int) frame.number(0, row);
    String kinds = "ll" + mine.carried;
    long time = frame.number(1, row);
    long window = Math.floorDiv(time, shape.windowUs);
    Routes routes = timeline.of(window);
    Routes.Side boxes = routes.sides[side];
    if (source + 1 >= boxes.start.length) return;
    int firstBox = (int) boxes.start[source], afterBox = (int) boxes.start[source + 1];
    if (firstBox == afterBox) return;
    long keys = Numbers.SEED;
    for (int on : mine.on) {
      if (frame.isNull(2 + on, row)) return; // joins nothing, as in SQL
      keys = Numbers.mix(Numbers.bits(frame, kinds, 2 + on, row), keys);
    }
    long h = Numbers.mix(time, Numbers.mix(sources.hash(source), Numbers.SEED));
    if (!frame.isNull(2, row)) h = Numbers.mix(Numbers.bits(frame, kinds, 2, row), h);
    double share = Numbers.unit(h), slice = Numbers.slice(window), key = Numbers.unit(keys);
    for (int box = firstBox; box < afterBox; box++) {
      if (!boxes.inside(box, 0, share) || !boxes.inside(box, 1, slice) || !boxes.inside(box, 2, key)) continue;
      int meeting = (int) boxes.meeting[box];
      long spread = Numbers.mix(window, Numbers.mix(meeting, keys));
      long bucket = Math.floorDiv(time, shape.bucketUs);
      long group = group(bucket, (int) Long.remainderUnsigned(spread, shape.parts));
      Frame.Builder packet = packets.computeIfAbsent(group, k -> new Frame.Builder(shape.packet(side)));
      long number = mine.before == null ? frame.first + row : frame.number(copies(), row);
      packet.put(0, meeting).put(1, number).put(2, source).put(3, time);
      for (int column = 0; column < mine.carried.length(); column++) {
        packet.copy(4 + column, frame, 2 + column, row);
      }
      packet.next();
      byNode.computeIfAbsent(routes.node[meeting], k -> new int[1])[0]++;
      byBucket.computeIfAbsent((bucket + 1) * shape.bucketUs, k -> new int[1])[0]++;
    }
  }

  /** A bucket's group that Spark's hash sends to this join task: so every task has its share of every bucket. */
  private long group(long bucket, int part) {
    for (long salt = 0; ; salt++) {
      long group = (bucket << SALT) + salt;
      if (Numbers.partition(group, shape.parts) == part) return group;
    }
  }

  private static java.sql.Timestamp moment(long us) {
    java.sql.Timestamp moment = new java.sql.Timestamp(Math.floorDiv(us, 1000L));
    moment.setNanos((int) Math.floorMod(us, 1_000_000L) * 1000);
    return moment;
  }

  private static long batch() {
    TaskContext context = TaskContext.get();
    String batch = context == null ? null : context.getLocalProperty("streaming.sql.batchId");
    return batch == null ? 0 : Long.parseLong(batch);
  }
}
