package nova.realtime;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Some rows as columns in one run of bytes, as `frames.py` writes and reads them: length, rows, two longs, then each
 * column. Kinds of columns: `l` 64-bit integers, `d` doubles (both 8 bytes a row), `s` bytes (offsets, then bytes).
 */
final class Frame {
  /** Bytes before the first column: int length of what follows it, int rows, long first, long stamp. */
  static final int HEAD = 24;

  private final ByteBuffer data;
  private final int[] valid;
  private final int[] values;
  final int rows;
  /** In an input log: number of the first row. In a packet and in results: when the tuples were read (µs). */
  final long first;
  /** When it was appended, routed or joined (µs since 1970). */
  final long stamp;
  /** Where the next frame begins. */
  final int end;

  Frame(ByteBuffer data, int start, String kinds) {
    this.data = data;
    end = start + 4 + data.getInt(start);
    rows = data.getInt(start + 4);
    first = data.getLong(start + 8);
    stamp = data.getLong(start + 16);
    valid = new int[kinds.length()];
    values = new int[kinds.length()];
    int at = start + HEAD;
    for (int column = 0; column < kinds.length(); column++) {
      boolean holes = data.get(at++) != 0;
      valid[column] = holes ? at : -1;
      at += holes ? rows : 0;
      values[column] = at;
      at += kinds.charAt(column) == 's' ? 4 * (rows + 1) + data.getInt(at + 4 * rows) : 8 * rows;
    }
  }

  /** All frames of some bytes. */
  static List<Frame> all(byte[] bytes, String kinds) {
    ByteBuffer data = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    List<Frame> frames = new ArrayList<>(1);
    for (int at = 0; at < bytes.length; ) {
      Frame frame = new Frame(data, at, kinds);
      frames.add(frame);
      at = frame.end;
    }
    return frames;
  }

  boolean isNull(int column, int row) {
    return valid[column] >= 0 && data.get(valid[column] + row) == 0;
  }

  long number(int column, int row) {
    return data.getLong(values[column] + 8 * row);
  }

  double real(int column, int row) {
    return data.getDouble(values[column] + 8 * row);
  }

  byte[] bytes(int column, int row, int rowsOfFrame) {
    int offset = data.getInt(values[column] + 4 * row);
    int length = data.getInt(values[column] + 4 * row + 4) - offset;
    byte[] copy = new byte[length];
    data.get(values[column] + 4 * (rowsOfFrame + 1) + offset, copy);
    return copy;
  }

  byte[] bytes(int column, int row) {
    return bytes(column, row, rows);
  }

  /** A frame that grows row by row, column by column. */
  static final class Builder implements Serializable {
    private final String kinds;
    private final ByteBuffer[] values;
    private final int[][] offsets;
    private final byte[][] valid;
    private int rows;

    Builder(String kinds) {
      this.kinds = kinds;
      int n = kinds.length();
      values = new ByteBuffer[n];
      offsets = new int[n][];
      valid = new byte[n][];
      for (int column = 0; column < n; column++) {
        values[column] = ByteBuffer.allocate(128).order(ByteOrder.LITTLE_ENDIAN);
        offsets[column] = kinds.charAt(column) == 's' ? new int[17] : null;
      }
    }

    int rows() {
      return rows;
    }

    Builder put(int column, long value) {
      room(column, 8).putLong(value);
      return this;
    }

    Builder put(int column, double value) {
      room(column, 8).putDouble(value);
      return this;
    }

    Builder put(int column, byte[] value) {
      room(column, value.length).put(value);
      return this;
    }

    Builder putNull(int column) {
      if (valid[column] == null) {
        valid[column] = new byte[Math.max(16, rows + 1)];
        Arrays.fill(valid[column], (byte) 1);
      } else if (valid[column].length <= rows) {
        int before = valid[column].length;
        valid[column] = Arrays.copyOf(valid[column], 2 * rows + 1);
        Arrays.fill(valid[column], before, valid[column].length, (byte) 1);
      }
      valid[column][rows] = 0;
      if (offsets[column] == null) room(column, 8).putLong(0);
      return this;
    }

    /** The value of another frame, whose column is of the same kind. */
    Builder copy(int column, Frame from, int other, int row) {
      if (from.isNull(other, row)) return putNull(column);
      if (offsets[column] != null) return put(column, from.bytes(other, row));
      return put(column, from.number(other, row));
    }

    /** All columns of the row are put. */
    void next() {
      rows++;
      for (int column = 0; column < values.length; column++) {
        if (offsets[column] == null) continue;
        if (offsets[column].length <= rows) offsets[column] = Arrays.copyOf(offsets[column], 2 * rows + 1);
        offsets[column][rows] = values[column].position();
      }
    }

    byte[] build(long first, long stamp) {
      int size = HEAD;
      for (int column = 0; column < values.length; column++) {
        size += 1 + (valid[column] == null ? 0 : rows) + (offsets[column] == null ? 0 : 4 * (rows + 1));
        size += values[column].position();
      }
      ByteBuffer out = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
      out.putInt(size - 4).putInt(rows).putLong(first).putLong(stamp);
      for (int column = 0; column < values.length; column++) {
        out.put((byte) (valid[column] == null ? 0 : 1));
        for (int row = 0; valid[column] != null && row < rows; row++) {
          out.put(row < valid[column].length ? valid[column][row] : 1);
        }
        for (int row = 0; offsets[column] != null && row <= rows; row++) out.putInt(offsets[column][row]);
        out.put(values[column].array(), 0, values[column].position());
      }
      return out.array();
    }

    private ByteBuffer room(int column, int bytes) {
      ByteBuffer now = values[column];
      if (now.remaining() >= bytes) return now;
      ByteBuffer larger = ByteBuffer.allocate(2 * (now.position() + bytes)).order(ByteOrder.LITTLE_ENDIAN);
      return values[column] = larger.put(now.flip());
    }
  }
}
