package nova.realtime;

import java.io.Serializable;
import java.util.LinkedList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Filters and projections of Spark's SQL, row by row: the expressions are Spark's own, analysed, optimised and compiled
 * by it, so a query means here what it means in batches.
 */
public final class Sql implements Serializable {
  /** In their order; null where Spark has found that no row passes. */
  private final List<Step> steps;
  /** Types of the columns that come in, and of those that go out. */
  private final DataType[] from;
  private final DataType[] to;

  /** What `frame` asks of the rows of its input. */
  public Sql(Dataset<?> frame) {
    LogicalPlan asked = frame.queryExecution().optimizedPlan();
    List<Step> found = new LinkedList<>();
    LogicalPlan at = asked;
    for (; !at.children().isEmpty(); at = at.children().head()) {
      Seq<Attribute> input = at.children().head().output();
      if (at instanceof Filter filter) found.add(0, new Step(filter.condition(), null, input));
      else if (at instanceof Project project) found.add(0, new Step(null, project.expressions(), input));
      else throw new IllegalArgumentException("neither a filter nor a projection: " + at.nodeName());
    }
    steps = at instanceof LogicalRDD ? found : null;
    LogicalPlan input = frame.queryExecution().analyzed();
    while (!input.children().isEmpty()) input = input.children().head();
    from = types(input);
    to = types(asked);
  }

  /** Whether rows become the same at any time: a repeated batch must repeat its results. */
  public static boolean steady(Dataset<?> frame) {
    LogicalPlan asked = frame.queryExecution().analyzed();
    return asked.deterministic() && !asked.containsPattern(TreePattern.CURRENT_LIKE());
  }

  private static DataType[] types(LogicalPlan plan) {
    return CollectionConverters.asJava(plan.output()).stream().map(Attribute::dataType).toArray(DataType[]::new);
  }

  /** The row that a row becomes; null where it does not pass. It is overwritten by the next one. */
  InternalRow of(Object[] values) {
    if (steps == null) return null;
    InternalRow row = new GenericInternalRow(values);
    for (Step step : steps) {
      row = step.of(row);
      if (row == null) return null;
    }
    return row;
  }

  /** Columns that come in. */
  int width() {
    return from.length;
  }

  /** A value of a frame as Spark holds those of a column that comes in. */
  Object value(int column, Frame frame, int other, int row) {
    if (frame.isNull(other, row)) return null;
    DataType type = from[column];
    if (type instanceof StringType) return UTF8String.fromBytes(frame.bytes(other, row));
    if (type instanceof BinaryType) return frame.bytes(other, row);
    if (type instanceof DoubleType) return frame.real(other, row);
    if (type instanceof FloatType) return (float) frame.real(other, row);
    long number = frame.number(other, row);
    if (type instanceof IntegerType || type instanceof DateType) return (int) number;
    if (type instanceof ShortType) return (short) number;
    if (type instanceof ByteType) return (byte) number;
    if (type instanceof BooleanType) return number != 0;
    return number;
  }

  /** Put a value that goes out into a frame. */
  void put(Frame.Builder frame, int column, InternalRow row, int other) {
    if (row.isNullAt(other)) {
      frame.putNull(column);
      return;
    }
    DataType type = to[other];
    if (type instanceof StringType) frame.put(column, row.getUTF8String(other).getBytes());
    else if (type instanceof BinaryType) frame.put(column, row.getBinary(other));
    else if (type instanceof DoubleType) frame.put(column, row.getDouble(other));
    else if (type instanceof FloatType) frame.put(column, (double) row.getFloat(other));
    else if (type instanceof IntegerType || type instanceof DateType) frame.put(column, (long) row.getInt(other));
    else if (type instanceof ShortType) frame.put(column, (long) row.getShort(other));
    else if (type instanceof ByteType) frame.put(column, (long) row.getByte(other));
    else if (type instanceof BooleanType) frame.put(column, row.getBoolean(other) ? 1L : 0L);
    else frame.put(column, row.getLong(other));
  }

  /** A condition, or else expressions for the columns of a row. */
  private static final class Step implements Serializable {
    private final Expression condition;
    private final Seq<Expression> columns;
    private final Seq<Attribute> input;
    private transient BasePredicate passes;
    private transient UnsafeProjection projection;

    Step(Expression condition, Seq<Expression> columns, Seq<Attribute> input) {
      this.condition = condition;
      this.columns = columns;
      this.input = input;
    }

    InternalRow of(InternalRow row) {
      if (condition == null) {
        if (projection == null) projection = UnsafeProjection$.MODULE$.create(columns, input);
        return projection.apply(row);
      }
      if (passes == null) passes = Predicate$.MODULE$.create(condition, input);
      return passes.eval(row) ? row : null;
    }
  }
}
