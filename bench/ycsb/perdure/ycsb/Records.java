package perdure.ycsb;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;

/**
 * The bytes of a record, which is one value of perdure. Its fields follow each other. Integers are
 * little-endian.
 *
 * <pre>
 *   2 bytes  size of the name
 *   4 bytes  size of the value
 *            the name in UTF-8
 *            the value
 * </pre>
 */
final class Records {
  private static final int HEAD = 6;

  private Records() {}

  static byte[] encode(Map<String, ByteIterator> fields) throws IOException {
    byte[][] names = new byte[fields.size()][];
    byte[][] values = new byte[fields.size()][];
    int count = 0;
    int size = 0;
    for (Map.Entry<String, ByteIterator> field : fields.entrySet()) {
      names[count] = bytes(field.getKey());
      values[count] = field.getValue().toArray();
      if (names[count].length > 0xffff) {
        throw new IOException("a name of more than 65,535 bytes: " + field.getKey());
      }
      size = Math.addExact(size, HEAD + names[count].length + values[count].length);
      ++count;
    }
    ByteBuffer record = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < count; ++i) {
      record.putShort((short) names[i].length).putInt(values[i].length);
      record.put(names[i]).put(values[i]);
    }
    return record.array();
  }

  /** Adds the fields with the names `wanted`, null for all, to `result`. */
  static void decode(byte[] record, Set<String> wanted, Map<String, ByteIterator> result)
      throws IOException {
    decode(ByteBuffer.wrap(record), record.length, wanted, result);
  }

  /** Adds the records that Pool.scan() has returned: 4 bytes of size before each. */
  static void decodeAll(byte[] records, Set<String> wanted,
      Vector<HashMap<String, ByteIterator>> result) throws IOException {
    ByteBuffer from = ByteBuffer.wrap(records).order(ByteOrder.LITTLE_ENDIAN);
    while (from.hasRemaining()) {
      int size = from.getInt();
      HashMap<String, ByteIterator> fields = new HashMap<>();
      decode(from, from.position() + size, wanted, fields);
      result.add(fields);
    }
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static void decode(ByteBuffer from, int end, Set<String> wanted,
      Map<String, ByteIterator> result) throws IOException {
    from.order(ByteOrder.LITTLE_ENDIAN);
    byte[] all = from.array();
    try {
      while (from.position() < end) {
        int nameSize = Short.toUnsignedInt(from.getShort());
        int valueSize = from.getInt();
        int name = from.position();
        int value = name + nameSize;
        if (valueSize < 0 || valueSize > end - value) {
          throw new BufferUnderflowException();
        }
        from.position(value + valueSize);
        String text = new String(all, name, nameSize, StandardCharsets.UTF_8);
        if (wanted == null || wanted.contains(text)) {
          result.put(text, new ByteArrayByteIterator(all, value, valueSize));
        }
      }
    } catch (BufferUnderflowException e) {
      throw new IOException("the value of this key is no record of YCSB");
    }
  }
}
