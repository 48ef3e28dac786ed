package org.tfsparsecap.captioner;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Determines how far a model's graph extends, which distinguishes a truncated file from one without
 * a description.
 */
final class FlatbufferSize {
  // Field numbers of tables in TensorFlow Lite's schema.
  private static final int[] TABLES_OF_MODEL = {1, 2, 4, 6, 7};
  private static final int SUBGRAPHS = 2;
  private static final int BUFFERS = 4;
  private static final int[] TABLES_OF_SUBGRAPH = {0, 3};
  private static final int MAX_SUBGRAPHS = 1000;

  private final ByteBuffer file;
  private int end;

  private FlatbufferSize(ByteBuffer file) {
    this.file = file;
  }

  /**
   * @param whole a file that begins with a graph.
   * @return a lower bound of the graph's size in bytes, or -1 if part of it lies beyond the end of
   *     the file.
   */
  static int of(ByteBuffer whole) {
    ByteBuffer file = whole.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    file.clear();
    FlatbufferSize extent = new FlatbufferSize(file);
    try {
      extent.walk();
    } catch (IndexOutOfBoundsException outside) {
      return -1;
    }
    return extent.end;
  }

  private void walk() {
    int model = follow(0);
    for (int field : TABLES_OF_MODEL) {
      int vector = vector(model, field);
      int count = vector == 0 ? 0 : file.getInt(vector);
      for (int i = 0; i < count; i++) {
        int table = table(vector, i);
        if (field == BUFFERS) {
          data(table);
        } else if (field == SUBGRAPHS && i < MAX_SUBGRAPHS) {
          subgraph(table);
        }
      }
    }
  }

  private void subgraph(int subgraph) {
    for (int field : TABLES_OF_SUBGRAPH) {
      int vector = vector(subgraph, field);
      int count = vector == 0 ? 0 : file.getInt(vector);
      for (int i = 0; i < count; i++) {
        table(vector, i);
      }
    }
  }

  private void data(int buffer) {
    int bytes = vector(buffer, 0);
    if (bytes != 0 && file.getInt(bytes) > 0) {
      extendTo((long) bytes + 4 + file.getInt(bytes));
    }
  }

  /** Returns the position of a table in a vector of tables. */
  private int table(int vector, int index) {
    int table = follow(Math.addExact(vector + 4, 4 * index));
    int description = table - file.getInt(table);
    extendTo((long) description + file.getShort(description));
    extendTo((long) table + file.getShort(description + 2));
    return table;
  }

  /** Returns the position of the vector in a table's field, or 0 if the field is not set. */
  private int vector(int table, int field) {
    int description = table - file.getInt(table);
    int place = 4 + 2 * field;
    int offset = place < file.getShort(description) ? file.getShort(description + place) : 0;
    return offset == 0 ? 0 : follow(table + offset);
  }

  private int follow(int place) {
    return place + file.getInt(place);
  }

  private void extendTo(long place) {
    if (place > file.limit()) {
      throw new IndexOutOfBoundsException();
    }
    end = Math.max(end, (int) place);
  }
}
