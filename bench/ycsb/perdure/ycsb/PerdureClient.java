package perdure.ycsb;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/** YCSB on a pool of perdure in this process. docs/ycsb.md lists the properties. */
public class PerdureClient extends DB {
  private Pool pool;
  private boolean failed;  // the first error of a thread is printed, and no other

  @Override
  public void init() throws DBException {
    try {
      pool = Pool.acquire(getProperties());
    } catch (IOException e) {
      throw new DBException(e);
    }
  }

  @Override
  public void cleanup() throws DBException {
    try {
      Pool.release();
    } catch (IOException e) {
      throw new DBException(e);
    }
  }

  @Override
  public Status read(String table, String key, Set<String> fields,
      Map<String, ByteIterator> result) {
    try {
      byte[] record = pool.get(Records.bytes(key));
      if (record == null) {
        return Status.NOT_FOUND;
      }
      Records.decode(record, fields, result);
      return Status.OK;
    } catch (IOException e) {
      return error(e);
    }
  }

  @Override
  public Status scan(String table, String startkey, int recordcount, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    if (!pool.ordered()) {
      return Status.NOT_IMPLEMENTED;
    }
    try {
      Records.decodeAll(pool.scan(Records.bytes(startkey), recordcount), fields, result);
      return Status.OK;
    } catch (IOException e) {
      return error(e);
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      boolean present = pool.update(Records.bytes(key), Records.encode(values));
      return present ? Status.OK : Status.NOT_FOUND;
    } catch (IOException e) {
      return error(e);
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    try {
      pool.put(Records.bytes(key), Records.encode(values));
      return Status.OK;
    } catch (IOException e) {
      return error(e);
    }
  }

  @Override
  public Status delete(String table, String key) {
    try {
      return pool.erase(Records.bytes(key)) ? Status.OK : Status.NOT_FOUND;
    } catch (IOException e) {
      return error(e);
    }
  }

  private Status error(IOException e) {
    if (!failed) {
      System.err.println(e.getMessage());
      failed = true;
    }
    return Status.ERROR;
  }
}
