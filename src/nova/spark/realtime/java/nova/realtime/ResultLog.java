package nova.realtime;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.spark.sql.ForeachWriter;

/** Frames of results to a file per batch and task, each as soon as it is there: `<batch>-<task>.frames`. */
final class ResultLog extends ForeachWriter<byte[]> {
  private final Shape shape;
  private final String folder;
  private transient FileChannel file;
  private transient Path path;
  private transient Live live;

  ResultLog(Shape shape, String folder) {
    this.shape = shape;
    this.folder = folder;
  }

  @Override
  public boolean open(long task, long batch) {
    live = Live.of(shape.query);
    path = Path.of(folder, String.format("%08d-%03d.frames", batch, task));
    return true;
  }

  @Override
  public void process(byte[] body) {
    try {
      if (file == null) {
        Files.createDirectories(path.getParent());
        file = FileChannel.open(
            path, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING);
      }
      ByteBuffer bytes = ByteBuffer.wrap(body);
      while (bytes.hasRemaining()) file.write(bytes);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    Gauge gauge = live.gauge;
    if (!gauge.timed()) return;
    long now = Numbers.nowUs();
    for (Frame frame : Frame.all(body, shape.result)) {
      if (gauge.outHere()) gauge.took(Gauge.SINK, now - frame.stamp, frame.rows);
      for (int row = 0; row < frame.rows; row++) {
        long due = gauge.dueUs(Math.max(frame.number(5, row), frame.number(6, row)));
        gauge.took(Gauge.SOURCE, frame.first - due, 1);
        if (gauge.outHere()) gauge.took(Gauge.TOTAL, now - due, 1);
      }
    }
  }

  @Override
  public void close(Throwable error) {
    try {
      if (file != null) file.close();
    } catch (IOException failed) {
      throw new UncheckedIOException(failed);
    }
  }
}
