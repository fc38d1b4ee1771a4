package nova.realtime;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/** A plan as data flow, as `nova.routing.routes` compiles it and `plans.py` writes it. */
final class Routes {
  final Side[] sides = new Side[2];
  /** Host of each meeting. */
  final int[] node;

  /** Boxes of the tuples of one side; those of source s are start[s] … start[s + 1] − 1. */
  static final class Side {
    final long[] start;
    final long[] meeting;
    /** Ranges of each box: shares, slices, keys. */
    final double[][] from;
    final double[][] to;

    Side(ByteBuffer in, int ranges) {
      start = longs(in);
      meeting = longs(in);
      from = new double[ranges][];
      to = new double[ranges][];
      for (int range = 0; range < ranges; range++) {
        from[range] = doubles(in);
        to[range] = doubles(in);
      }
    }

    boolean inside(int box, int range, double place) {
      return from[range][box] <= place && place < to[range][box];
    }
  }

  Routes(Path file) throws IOException {
    ByteBuffer in = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
    sides[0] = new Side(in, 3);
    sides[1] = new Side(in, 3);
    long[] hosts = longs(in);
    node = new int[hosts.length];
    for (int i = 0; i < hosts.length; i++) node[i] = (int) hosts[i];
  }

  private static long[] longs(ByteBuffer in) {
    long[] values = new long[(int) in.getLong()];
    for (int i = 0; i < values.length; i++) values[i] = in.getLong();
    return values;
  }

  private static double[] doubles(ByteBuffer in) {
    double[] values = new double[(int) in.getLong()];
    for (int i = 0; i < values.length; i++) values[i] = in.getDouble();
    return values;
  }
}
