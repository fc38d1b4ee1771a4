package nova.realtime;

import java.util.concurrent.TimeoutException;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.Trigger;

/**
 * The windowed join of a plan in real-time mode.
 *
 * <pre>log ─ route ─┐
 *               ├─ by group ─ join ─ results
 *   log ─ route ─┘</pre>
 */
public final class Pipeline {
  private Pipeline() {}

  /** Packets of a log's tuples. */
  public static Dataset<Row> packets(SparkSession spark, Shape shape, int side, String log) {
    return spark
        .readStream()
        .format(LogSource.class.getName())
        .option("path", log)
        .option("query", shape.query)
        .option("side", side)
        .load()
        .flatMap(new Router(shape, side), Encoders.row(Router.PACKET));
  }

  /** Frames of results of the query `name`. Tuples up to `lateMs` behind the latest of their own stream are never dropped. */
  public static Dataset<byte[]> joined(
      Shape shape, String name, Dataset<Row> left, Dataset<Row> right, long lateMs) {
    String late = lateMs + (shape.bucketUs + 999) / 1000 + " milliseconds";
    return left.withWatermark("bucket_end", late)
        .union(right.withWatermark("bucket_end", late))
        .groupByKey((MapFunction<Row, Long>) packet -> packet.getLong(0), Encoders.LONG())
        .transformWithState(new Join(shape, name), TimeMode.EventTime(), OutputMode.Update(), Encoders.BINARY());
  }

  /** Start to join; results go to the folder `results`, state to `checkpoint`, the latter every `everyMs`. */
  public static StreamingQuery start(
      Shape shape, Dataset<byte[]> joined, String name, String results, String checkpoint, long everyMs)
      throws TimeoutException {
    return joined
        .writeStream()
        .queryName(name)
        .outputMode(OutputMode.Update())
        .option("checkpointLocation", checkpoint)
        .trigger(Trigger.RealTime(everyMs))
        .foreach(new ResultLog(shape, results))
        .start();
  }
}
