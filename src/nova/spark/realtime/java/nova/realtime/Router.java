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
import org.apache.spark.sql.types.StructType;

/** Frames of tuples in, packets out: each holds tuples of one group, which is a bucket's windows in one join task. */
final class Router implements FlatMapFunction<Row, Row> {
  static final StructType PACKET = StructType.fromDDL("group bigint, bucket_end timestamp, side int, body binary");
  /** Bits of a group's number that are not its bucket's. */
  static final int SALT = 16;

  private final Shape shape;
  private final int side;

  Router(Shape shape, int side) {
    this.shape = shape;
    this.side = side;
  }

  @Override
  public Iterator<Row> call(Row row) throws InterruptedException {
    byte[] body = (byte[]) row.get(0);
    long read = row.getLong(1);
    String kinds = shape.logged(side);
    List<Frame> frames = Frame.all(body, kinds);
    Live live = Live.of(shape.query);
    long earliest = Long.MAX_VALUE, latest = Long.MIN_VALUE;
    int rows = 0;
    for (Frame frame : frames) {
      rows += frame.rows;
      for (int i = 0; i < frame.rows; i++) {
        earliest = Math.min(earliest, frame.number(1, i));
        latest = Math.max(latest, frame.number(1, i));
      }
    }
    if (rows == 0) return Collections.emptyIterator();
    Live.Timeline timeline = live.enter(Math.floorDiv(latest, shape.windowUs));
    long[] sources = live.sources();
    Map<Long, Frame.Builder> packets = new HashMap<>();
    Map<Integer, int[]> byNode = new HashMap<>();
    Map<Long, int[]> byBucket = new HashMap<>();
    int strangers = 0;
    for (Frame frame : frames) {
      for (int i = 0; i < frame.rows; i++) {
        int source = (int) frame.number(0, i);
        if (source < 0 || source >= sources.length) strangers++;
        else route(frame, i, source, sources[source], kinds, timeline, packets, byNode, byBucket);
      }
    }
    live.gauge.read(side, rows, strangers, earliest, latest);
    live.gauge.routed(byNode, batch(), byBucket);
    long routed = Numbers.nowUs();
    List<Row> out = new ArrayList<>(packets.size());
    packets.forEach(
        (group, packet) -> {
          long endUs = ((group >> SALT) + 1) * shape.bucketUs;
          out.add(RowFactory.create(group, moment(endUs), side, packet.build(read, routed)));
        });
    return out.iterator();
  }

  private void route(
      Frame frame, int row, int source, long hash, String kinds, Live.Timeline timeline,
      Map<Long, Frame.Builder> packets, Map<Integer, int[]> byNode, Map<Long, int[]> byBucket) {
    long time = frame.number(1, row);
    long window = Math.floorDiv(time, shape.windowUs);
    Routes routes = timeline.of(window);
    Routes.Side boxes = routes.sides[side];
    if (source + 1 >= boxes.start.length) return;
    int firstBox = (int) boxes.start[source], afterBox = (int) boxes.start[source + 1];
    if (firstBox == afterBox) return;
    long keys = Numbers.SEED;
    for (int on : shape.on(side)) {
      if (frame.isNull(2 + on, row)) return; // joins nothing, as in SQL
      keys = Numbers.mix(Numbers.bits(frame, kinds, 2 + on, row), keys);
    }
    long h = Numbers.mix(time, Numbers.mix(hash, Numbers.SEED));
    if (!frame.isNull(2, row)) h = Numbers.mix(Numbers.bits(frame, kinds, 2, row), h);
    double share = Numbers.unit(h), slice = Numbers.slice(window), key = Numbers.unit(keys);
    for (int box = firstBox; box < afterBox; box++) {
      if (!boxes.inside(box, 0, share) || !boxes.inside(box, 1, slice) || !boxes.inside(box, 2, key)) continue;
      int meeting = (int) boxes.meeting[box];
      long spread = Numbers.mix(window, Numbers.mix(meeting, keys));
      long bucket = Math.floorDiv(time, shape.bucketUs);
      long group = group(bucket, (int) Long.remainderUnsigned(spread, shape.parts));
      Frame.Builder packet = packets.computeIfAbsent(group, k -> new Frame.Builder(shape.packet(side)));
      packet.put(0, meeting).put(1, frame.first + row).put(2, source).put(3, time);
      for (int column = 0; column < shape.carried(side).length(); column++) {
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
