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
  private final Side[] sides = new Side[2];
  /** Columns of results: node, numbers, sources and times of left and right, window, then their own. */
  final String result;
  /** What is asked of pairs, over the columns of results; null: nothing. */
  final Sql after;

  /** Tuples of one side. */
  public static final class Side implements Serializable {
    /** Kinds of the columns of its log: source, time, then what tuples carry there. */
    final String logged;
    /** Kinds of the columns that travelling tuples carry beside source and time: value first. */
    final String carried;
    /** Places of the columns that must be equal, among those. */
    final int[] on;
    /** Place of the event time among those, where tuples are copied into windows; −1: their time is the event's. */
    final int born;
    /** What is asked of tuples before they travel: from source, time and what the log has to the same of those that
     * travel, and at last, where they are copied, an array of times; null: nothing. */
    final Sql before;

    public Side(String logged, String carried, int[] on, int born, Sql before) {
      this.logged = "ll" + logged;
      this.carried = carried;
      this.on = on;
      this.born = born;
      this.before = before;
    }
  }

  /** `selected`: kinds of the columns of results beside those that all have; null: what both sides carry. */
  public Shape(
      String query, long windowUs, long bucketUs, int parts, Side left, Side right, String selected, Sql after) {
    this.query = query;
    this.windowUs = windowUs;
    this.bucketUs = bucketUs;
    this.parts = parts;
    sides[0] = left;
    sides[1] = right;
    result = "llllllll" + (selected == null ? left.carried + right.carried : selected);
    this.after = after;
  }

  Side side(int side) {
    return sides[side];
  }

  /** Columns of a packet: meeting, number of the tuple in its log, source, time, then what tuples carry. */
  String packet(int side) {
    return "llll" + sides[side].carried;
  }
}
