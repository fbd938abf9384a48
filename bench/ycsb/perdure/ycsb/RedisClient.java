package perdure.ycsb;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisException;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB on a redis server, with one connection for each client thread. A record is a hash, and all
 * keys are in one sorted set, as in the binding of YCSB. Here the set is in the order of keys, so a
 * scan returns the same records as one of perdure, and what one operation sends goes in one
 * pipeline: one round trip, of a scan two.
 */
public class RedisClient extends DB {
  private static final byte[] KEYS = Records.bytes("_indices");
  private static final byte[] LAST = Records.bytes("+");

  private Jedis connection;
  private boolean failed;  // the first error of a thread is printed, and no other

  @Override
  public void init() throws DBException {
    String host = getProperties().getProperty("redis.host", "127.0.0.1");
    int port = Integer.parseInt(getProperties().getProperty("redis.port", "6379"));
    try {
      connection = new Jedis(host, port);
      connection.connect();
    } catch (JedisException e) {
      throw new DBException(e);
    }
  }

  @Override
  public void cleanup() {
    connection.close();
  }

  @Override
  public Status read(String table, String key, Set<String> fields,
      Map<String, ByteIterator> result) {
    try {
      if (fields == null) {
        putAll(connection.hgetAll(Records.bytes(key)), result);
      } else {
        List<String> names = new ArrayList<>(fields);
        putAll(names, connection.hmget(Records.bytes(key), encoded(names)), result);
      }
      return result.isEmpty() ? Status.NOT_FOUND : Status.OK;
    } catch (JedisException e) {
      return error(e);
    }
  }

  @Override
  public Status scan(String table, String startkey, int recordcount, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    try {
      List<byte[]> keys = connection.zrangeByLex(KEYS, Records.bytes("[" + startkey), LAST, 0,
          recordcount);
      List<String> names = fields == null ? null : new ArrayList<>(fields);
      List<Response<Map<byte[], byte[]>>> whole = new ArrayList<>();
      List<Response<List<byte[]>>> parts = new ArrayList<>();
      Pipeline pipeline = connection.pipelined();
      for (byte[] key : keys) {
        if (names == null) {
          whole.add(pipeline.hgetAll(key));
        } else {
          parts.add(pipeline.hmget(key, encoded(names)));
        }
      }
      pipeline.sync();
      for (Response<Map<byte[], byte[]>> record : whole) {
        HashMap<String, ByteIterator> values = new HashMap<>();
        putAll(record.get(), values);
        result.add(values);
      }
      for (Response<List<byte[]>> record : parts) {
        HashMap<String, ByteIterator> values = new HashMap<>();
        putAll(names, record.get(), values);
        result.add(values);
      }
      return Status.OK;
    } catch (JedisException e) {
      return error(e);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      connection.hset(Records.bytes(key), encoded(values));
      return Status.OK;
    } catch (JedisException e) {
      return error(e);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      Pipeline pipeline = connection.pipelined();
      Response<Long> set = pipeline.hset(Records.bytes(key), encoded(values));
      Response<Long> listed = pipeline.zadd(KEYS, 0, Records.bytes(key));
      pipeline.sync();
      set.get();  // throws what the server has refused
      listed.get();
      return Status.OK;
    } catch (JedisException e) {
      return error(e);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      Pipeline pipeline = connection.pipelined();
      Response<Long> deleted = pipeline.del(Records.bytes(key));
      Response<Long> listed = pipeline.zrem(KEYS, Records.bytes(key));
      pipeline.sync();
      listed.get();  // throws what the server has refused
      return deleted.get() > 0 ? Status.OK : Status.NOT_FOUND;
    } catch (JedisException e) {
      return error(e);
    }
  }

  private static byte[][] encoded(List<String> names) {
    return names.stream().map(Records::bytes).toArray(byte[][]::new);
  }

  private static Map<byte[], byte[]> encoded(Map<String, ByteIterator> values) {
    Map<byte[], byte[]> fields = new HashMap<>();
    for (Map.Entry<String, ByteIterator> field : values.entrySet()) {
      fields.put(Records.bytes(field.getKey()), field.getValue().toArray());
    }
    return fields;
  }

  private static void putAll(Map<byte[], byte[]> fields, Map<String, ByteIterator> result) {
    for (Map.Entry<byte[], byte[]> field : fields.entrySet()) {
      result.put(new String(field.getKey(), StandardCharsets.UTF_8),
          new ByteArrayByteIterator(field.getValue()));
    }
  }

  private static void putAll(List<String> names, List<byte[]> values,
      Map<String, ByteIterator> result) {
    for (int i = 0; i < names.size(); ++i) {
      if (values.get(i) != null) {
        result.put(names.get(i), new ByteArrayByteIterator(values.get(i)));
      }
    }
  }

  private Status error(JedisException e) {
    if (!failed) {
      System.err.println(e.getMessage());
      failed = true;
    }
    return Status.ERROR;
  }
}
