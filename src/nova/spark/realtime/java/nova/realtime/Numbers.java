package nova.realtime;

import java.time.Instant;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.hash.Murmur3_x86_32;

/** Hashes and clocks; the hashes are those of `nova.routing.position`. */
final class Numbers {
  static final long SEED = 42;
  private static final double GOLDEN = 0.6180339887;

  private Numbers() {}

  static long nowUs() {
    Instant now = Instant.now();
    return now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
  }

  /** Place of a window in [0, 1). */
  static double slice(long window) {
    double turned = window * GOLDEN;
    return turned - Math.floor(turned);
  }

  static double unit(long hash) {
    return (hash >>> 11) * 0x1p-53;
  }

  static long mix(long value, long hash) {
    return XXH64.hashLong(value, hash);
  }

  /** 64 bits of a value that is not null: equal values have equal bits. */
  static long bits(Frame frame, String kinds, int column, int row) {
    switch (kinds.charAt(column)) {
      case 's':
        byte[] bytes = frame.bytes(column, row);
        return XXH64.hashUnsafeBytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length, SEED);
      case 'd':
        return Double.doubleToLongBits(frame.real(column, row) + 0.0);
      default:
        return Double.doubleToLongBits((double) frame.number(column, row));
    }
  }

  /** The shuffle partition that Spark sends a group to. */
  static int partition(long key, int parts) {
    int hash = Murmur3_x86_32.hashLong(key, 42) % parts;
    return hash < 0 ? hash + parts : hash;
  }
}
