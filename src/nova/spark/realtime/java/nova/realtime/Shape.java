package nova.realtime;

import java.io.Serializable;

/** What all parts of one query agree on. */
public final class Shape implements Serializable {
  /** Name under which the parts find their counts and plans: see `Live`. */
  final String query;
  final long windowUs;
  final long bucketUs;
  /** Tasks that join. */
  final int parts;
  /** Kinds of the columns that tuples carry beside source and time: value first. */
  final String left;
  final String right;
  /** Places of the columns that must be equal, among those. */
  final int[] leftOn;
  final int[] rightOn;

  public Shape(
      String query, long windowUs, long bucketUs, int parts, String left, String right, int[] leftOn, int[] rightOn) {
    this.query = query;
    this.windowUs = windowUs;
    this.bucketUs = bucketUs;
    this.parts = parts;
    this.left = left;
    this.right = right;
    this.leftOn = leftOn;
    this.rightOn = rightOn;
  }

  String carried(int side) {
    return side == 0 ? left : right;
  }

  int[] on(int side) {
    return side == 0 ? leftOn : rightOn;
  }

  /** Columns of an input log: source, time, then what tuples carry. */
  String logged(int side) {
    return "ll" + carried(side);
  }

  /** Columns of a packet: meeting, number of the tuple in its log, source, time, then what tuples carry. */
  String packet(int side) {
    return "llll" + carried(side);
  }

  /** Columns of results: node, numbers, sources and times of left and right, then what they carry. */
  String result() {
    return "lllllll" + left + right;
  }
}
