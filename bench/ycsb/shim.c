// The native methods of perdure.ycsb.Pool, on the C library. Records.java describes the bytes of a
// record; this file changes single fields of one.
#include <jni.h>
#include <perdure/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perdure_ycsb_Pool.h"  // javac writes it

typedef struct store {
  perdure_pool* pool;
  perdure_map* map;
} store;

static store* store_of(jlong handle) { return (store*)(intptr_t)handle; }

// ---- errors -------------------------------------------------------------------------------------

static void throw_text(JNIEnv* env, const char* text) {
  jclass type = (*env)->FindClass(env, "java/io/IOException");
  if (type != NULL) {
    (*env)->ThrowNew(env, type, text);
  }
}

// Throws what the last call of the thread reported, if `status` is an error.
static bool failed(JNIEnv* env, perdure_status status) {
  if (status != PERDURE_OK) {
    throw_text(env, perdure_last_error());
  }
  return status != PERDURE_OK;
}

static void log_line(void* context, perdure_log_level level, const char* line) {
  (void)context;
  if (level != PERDURE_LOG_INFO) {
    fprintf(stderr, "%s\n", line);
  }
}

// ---- bytes --------------------------------------------------------------------------------------

enum { SMALL = 4096 };

// A copy of an array of Java. The collector may move the array itself while the library works.
typedef struct argument {
  unsigned char* data;
  size_t size;
  unsigned char small[SMALL];
} argument;

static bool copy_in(JNIEnv* env, jbyteArray array, argument* to) {
  jsize size = (*env)->GetArrayLength(env, array);
  to->size = (size_t)size;
  to->data = size <= SMALL ? to->small : malloc((size_t)size);
  if (to->data == NULL) {
    throw_text(env, "out of memory");
    return false;
  }
  (*env)->GetByteArrayRegion(env, array, 0, size, (jbyte*)to->data);
  return true;
}

static void release(argument* from) {
  if (from->data != from->small) {
    free(from->data);
  }
}

static jbyteArray copy_out(JNIEnv* env, const void* data, size_t size) {
  if (size > INT32_MAX) {
    throw_text(env, "an array of Java cannot hold this result");
    return NULL;
  }
  jbyteArray array = (*env)->NewByteArray(env, (jsize)size);
  if (array != NULL) {
    (*env)->SetByteArrayRegion(env, array, 0, (jsize)size, (const jbyte*)data);
  }
  return array;
}

typedef struct buffer {
  unsigned char* data;
  size_t size;
  size_t capacity;
} buffer;

static bool append(buffer* to, const void* data, size_t size) {
  if (to->capacity - to->size < size) {
    size_t capacity = (to->size + size) * 2;
    unsigned char* grown = realloc(to->data, capacity);
    if (grown == NULL) {
      return false;
    }
    to->data = grown;
    to->capacity = capacity;
  }
  if (size > 0) {
    memcpy(to->data + to->size, data, size);
  }
  to->size += size;
  return true;
}

// ---- fields -------------------------------------------------------------------------------------

enum { FIELD_HEAD = 6 };  // 2 bytes: size of the name; 4 bytes: size of the value

typedef struct field {
  const unsigned char* head;
  size_t size;  // of all of it
  size_t name_size;
} field;

// Reads the field at *at and moves behind it. False at the end; *bad if the rest is no field.
static bool next_field(const unsigned char** at, const unsigned char* end, field* found,
                       bool* bad) {
  size_t left = (size_t)(end - *at);
  if (left == 0) {
    return false;
  }
  const unsigned char* p = *at;
  if (left >= FIELD_HEAD) {
    uint32_t value_size = p[2] | (uint32_t)p[3] << 8 | (uint32_t)p[4] << 16 | (uint32_t)p[5] << 24;
    found->head = p;
    found->name_size = p[0] | (size_t)p[1] << 8;
    found->size = FIELD_HEAD + found->name_size + value_size;
    if (found->size <= left) {
      *at += found->size;
      return true;
    }
  }
  *bad = true;
  return false;
}

static bool same_name(const field* a, const field* b) {
  return a->name_size == b->name_size &&
         memcmp(a->head + FIELD_HEAD, b->head + FIELD_HEAD, a->name_size) == 0;
}

// Finds the field of `data` that has the name of `wanted`.
static bool find_field(const unsigned char* data, size_t size, const field* wanted, field* found,
                       bool* bad) {
  const unsigned char* at = data;
  while (next_field(&at, data + size, found, bad)) {
    if (same_name(found, wanted)) {
      return true;
    }
  }
  return false;
}

typedef struct update {
  const argument* changes;
  buffer record;
  bool bad;     // the stored value is no record
  bool memory;  // there is none
} update;

// The stored record with the changed fields in their place, and with new ones behind.
static perdure_change merge(void* context, const void* before, size_t before_size,
                            perdure_bytes* after) {
  update* self = context;
  const unsigned char* old = before;
  const unsigned char* changes = self->changes->data;
  self->bad = false;  // of an attempt before this one
  self->memory = false;
  if (old == NULL) {
    return PERDURE_CHANGE_NONE;
  }
  field each;
  field other;
  bool enough = true;
  self->record.size = 0;
  const unsigned char* at = old;
  while (next_field(&at, old + before_size, &each, &self->bad)) {
    bool changed = find_field(changes, self->changes->size, &each, &other, &self->bad);
    const field* chosen = changed ? &other : &each;
    enough = enough && append(&self->record, chosen->head, chosen->size);
  }
  at = changes;
  while (next_field(&at, changes + self->changes->size, &each, &self->bad)) {
    if (!find_field(old, before_size, &each, &other, &self->bad)) {
      enough = enough && append(&self->record, each.head, each.size);
    }
  }
  self->memory = !enough;
  if (self->bad || self->memory) {
    return PERDURE_CHANGE_NONE;
  }
  after->data = self->record.data;
  after->size = self->record.size;
  return PERDURE_CHANGE_PUT;
}

// ---- open and close -----------------------------------------------------------------------------

// PERDURE_ENGINE_DEFAULT if there is no such engine, and for "".
static perdure_engine engine_of(const char* name) {
  for (int number = 1; number <= 64; ++number) {
    const char* known = perdure_engine_name((perdure_engine)number);
    if (known != NULL && strcmp(known, name) == 0) {
      return (perdure_engine)number;
    }
  }
  return PERDURE_ENGINE_DEFAULT;
}

static store* open_store(JNIEnv* env, const char* path, const perdure_pool_options* pool_options,
                         const char* table, const perdure_map_options* map_options) {
  store* opened = calloc(1, sizeof *opened);
  if (opened == NULL) {
    throw_text(env, "out of memory");
    return NULL;
  }
  perdure_status status = perdure_pool_open(path, pool_options, &opened->pool);
  if (status == PERDURE_OK) {
    status = perdure_map_open(opened->pool, table, map_options, &opened->map);
  }
  if (failed(env, status)) {
    perdure_pool_close(opened->pool, 0);
    free(opened);
    return NULL;
  }
  return opened;
}

JNIEXPORT jlong JNICALL Java_perdure_ycsb_Pool_open(JNIEnv* env, jclass type, jstring path,
                                                    jint durability, jlong size, jstring table,
                                                    jstring engine, jlong capacity) {
  (void)type;
  perdure_pool_options pool_options = PERDURE_POOL_OPTIONS_INIT;
  pool_options.durability = (perdure_durability)durability;
  pool_options.max_size = (uint64_t)size;
  pool_options.log = log_line;
  perdure_map_options map_options = PERDURE_MAP_OPTIONS_INIT;
  map_options.capacity = (uint64_t)capacity;
  store* opened = NULL;
  const char* path_text = (*env)->GetStringUTFChars(env, path, NULL);
  const char* table_text = path_text ? (*env)->GetStringUTFChars(env, table, NULL) : NULL;
  const char* engine_text = table_text ? (*env)->GetStringUTFChars(env, engine, NULL) : NULL;
  if (engine_text != NULL) {
    map_options.engine = engine_of(engine_text);
    if (map_options.engine == PERDURE_ENGINE_DEFAULT && engine_text[0] != '\0') {
      throw_text(env, "perdure.engine: there is no such engine");
    } else {
      opened = open_store(env, path_text, &pool_options, table_text, &map_options);
    }
    (*env)->ReleaseStringUTFChars(env, engine, engine_text);
  }
  if (table_text != NULL) {
    (*env)->ReleaseStringUTFChars(env, table, table_text);
  }
  if (path_text != NULL) {
    (*env)->ReleaseStringUTFChars(env, path, path_text);
  }
  return (jlong)(intptr_t)opened;
}

JNIEXPORT void JNICALL Java_perdure_ycsb_Pool_close(JNIEnv* env, jclass type, jlong handle) {
  (void)type;
  store* closed = store_of(handle);
  perdure_map_close(closed->map);
  failed(env, perdure_pool_close(closed->pool, 0));
  free(closed);
}

JNIEXPORT jboolean JNICALL Java_perdure_ycsb_Pool_ordered(JNIEnv* env, jclass type, jlong handle) {
  (void)type;
  perdure_map_info info = {.struct_size = sizeof info};
  return !failed(env, perdure_map_get_info(store_of(handle)->map, &info)) && info.ordered != 0;
}

// ---- operations ---------------------------------------------------------------------------------

JNIEXPORT jbyteArray JNICALL Java_perdure_ycsb_Pool_get(JNIEnv* env, jclass type, jlong handle,
                                                        jbyteArray key) {
  (void)type;
  perdure_map* map = store_of(handle)->map;
  argument k;
  if (!copy_in(env, key, &k)) {
    return NULL;
  }
  unsigned char small[SMALL];
  size_t size = 0;
  bool present = false;
  void* large = NULL;
  perdure_status status = perdure_get_into(map, k.data, k.size, small, SMALL, &size, &present);
  if (status == PERDURE_TRUNCATED) {
    status = perdure_get(map, k.data, k.size, &large, &size);
    present = large != NULL;
  }
  release(&k);
  jbyteArray result = NULL;
  if (!failed(env, status) && present) {
    result = copy_out(env, large != NULL ? large : small, size);
  }
  perdure_free(large);
  return result;
}

JNIEXPORT void JNICALL Java_perdure_ycsb_Pool_put(JNIEnv* env, jclass type, jlong handle,
                                                  jbyteArray key, jbyteArray record) {
  (void)type;
  argument k;
  argument r;
  if (!copy_in(env, key, &k)) {
    return;
  }
  if (copy_in(env, record, &r)) {
    failed(env, perdure_put(store_of(handle)->map, k.data, k.size, r.data, r.size, NULL));
    release(&r);
  }
  release(&k);
}

JNIEXPORT jboolean JNICALL Java_perdure_ycsb_Pool_update(JNIEnv* env, jclass type, jlong handle,
                                                         jbyteArray key, jbyteArray changes) {
  (void)type;
  bool present = false;
  argument k;
  argument c;
  if (!copy_in(env, key, &k)) {
    return JNI_FALSE;
  }
  if (copy_in(env, changes, &c)) {
    update context = {.changes = &c};
    perdure_status status =
        perdure_modify(store_of(handle)->map, k.data, k.size, merge, &context, &present);
    if (!failed(env, status) && (context.bad || context.memory)) {
      throw_text(env, context.bad ? "the value of this key is no record of YCSB" : "out of memory");
    }
    free(context.record.data);
    release(&c);
  }
  release(&k);
  return present ? JNI_TRUE : JNI_FALSE;
}

JNIEXPORT jboolean JNICALL Java_perdure_ycsb_Pool_erase(JNIEnv* env, jclass type, jlong handle,
                                                        jbyteArray key) {
  (void)type;
  bool present = false;
  argument k;
  if (copy_in(env, key, &k)) {
    failed(env, perdure_erase(store_of(handle)->map, k.data, k.size, &present));
    release(&k);
  }
  return present ? JNI_TRUE : JNI_FALSE;
}

typedef struct scanned {
  buffer records;
  bool memory;  // there is none
} scanned;

// Appends the size of the record, in 4 bytes, and the record.
static bool append_record(void* context, const void* key, size_t key_size, const void* value,
                          size_t value_size) {
  (void)key;
  (void)key_size;
  scanned* self = context;
  unsigned char head[4];
  for (int i = 0; i < 4; ++i) {
    head[i] = (unsigned char)(value_size >> (8 * i));
  }
  self->memory =
      !append(&self->records, head, sizeof head) || !append(&self->records, value, value_size);
  return !self->memory;
}

JNIEXPORT jbyteArray JNICALL Java_perdure_ycsb_Pool_scan(JNIEnv* env, jclass type, jlong handle,
                                                         jbyteArray from, jint limit) {
  (void)type;
  argument k;
  if (!copy_in(env, from, &k)) {
    return NULL;
  }
  perdure_range range = PERDURE_RANGE_INIT;
  range.from = k.data;
  range.from_size = k.size;
  range.limit = (uint64_t)limit;
  scanned result = {{NULL, 0, 0}, false};
  perdure_status status =
      limit > 0 ? perdure_scan(store_of(handle)->map, &range, append_record, &result, NULL)
                : PERDURE_OK;  // a limit of 0 would stand for none
  release(&k);
  jbyteArray records = NULL;
  if (!failed(env, status)) {
    if (result.memory) {
      throw_text(env, "out of memory");
    } else {
      records = copy_out(env, result.records.data, result.records.size);
    }
  }
  free(result.records.data);
  return records;
}
