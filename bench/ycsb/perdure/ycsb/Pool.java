package perdure.ycsb;

import java.io.IOException;
import java.util.Locale;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The pool that all client threads of the process share, and its map. */
final class Pool {
  private static final String[] DURABILITIES = {"auto", "process", "power", "emulated"};
  private static Pool shared;
  private static int users;

  private final long handle;
  private final boolean ordered;

  private Pool(Properties properties) throws IOException {
    String path = properties.getProperty("perdure.path");
    if (path == null) {
      throw new IOException("set perdure.path to the file of the pool");
    }
    handle = open(path, durability(properties.getProperty("perdure.durability", "auto")),
        number(properties, "perdure.size"),
        properties.getProperty("table", "usertable"),
        properties.getProperty("perdure.engine", ""),
        number(properties, "perdure.capacity"));
    ordered = ordered(handle);
  }

  /** Opens the pool for the first thread that comes. Each one must call release(). */
  static synchronized Pool acquire(Properties properties) throws IOException {
    if (shared == null) {
      System.loadLibrary("perdure_ycsb");
      shared = new Pool(properties);
    }
    ++users;
    return shared;
  }

  /** Closes the pool when the last thread leaves. */
  static synchronized void release() throws IOException {
    if (--users == 0) {
      Pool last = shared;
      shared = null;
      close(last.handle);
    }
  }

  /** True if the engine keeps the order of keys, so that scan() works. */
  boolean ordered() {
    return ordered;
  }

  /** The record of the key, or null. */
  byte[] get(byte[] key) throws IOException {
    return get(handle, key);
  }

  /** Inserts the key or replaces its record. */
  void put(byte[] key, byte[] record) throws IOException {
    put(handle, key, record);
  }

  /** Changes some fields of a record, in one atomic step. False if the key is absent. */
  boolean update(byte[] key, byte[] fields) throws IOException {
    return update(handle, key, fields);
  }

  /** False if the key is absent. */
  boolean erase(byte[] key) throws IOException {
    return erase(handle, key);
  }

  /** Up to `limit` records from the key on, in the form of Records.decodeAll(). */
  byte[] scan(byte[] from, int limit) throws IOException {
    return scan(handle, from, limit);
  }

  private static int durability(String name) throws IOException {
    for (int number = 0; number < DURABILITIES.length; ++number) {
      if (DURABILITIES[number].equals(name)) {
        return number;
      }
    }
    throw new IOException("perdure.durability is " + name + "; use one of "
        + String.join(", ", DURABILITIES));
  }

  /** The number that a property has, a text like 512M with units of 1024; 0 if it is not set. */
  private static long number(Properties properties, String name) throws IOException {
    String text = properties.getProperty(name, "0");
    Matcher parts = Pattern.compile("(\\d{1,15})([KMGT]?)").matcher(text.toUpperCase(Locale.ROOT));
    if (parts.matches()) {
      int shift = parts.group(2).isEmpty() ? 0 : 10 * " KMGT".indexOf(parts.group(2));
      long number = Long.parseLong(parts.group(1));
      if (number <= Long.MAX_VALUE >> shift) {
        return number << shift;
      }
    }
    throw new IOException(name + " is " + text + "; write a number, or 512M, 64G and the like");
  }

  private static native long open(String path, int durability, long size, String table,
      String engine, long capacity) throws IOException;

  private static native void close(long handle) throws IOException;

  private static native boolean ordered(long handle) throws IOException;

  private static native byte[] get(long handle, byte[] key) throws IOException;

  private static native void put(long handle, byte[] key, byte[] record) throws IOException;

  private static native boolean update(long handle, byte[] key, byte[] fields) throws IOException;

  private static native boolean erase(long handle, byte[] key) throws IOException;

  private static native byte[] scan(long handle, byte[] from, int limit) throws IOException;
}
