#include "platform/memory_files.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace perdure {

namespace {

Status fails(StatusCode code, std::string_view path, const char* why) noexcept {
  return Status::format(code, "%.*s, in memory: %s", static_cast<int>(path.size()), path.data(),
                        why);
}

}  // namespace

MemoryFiles::~MemoryFiles() {
  for (Content& content : contents_) {
    if (!is_placed(content)) std::free(content.bytes);
  }
}

MemoryFiles::Content* MemoryFiles::find(std::string_view path) noexcept {
  for (Content& content : contents_) {
    if (content.name == path && !path.empty()) return &content;
  }
  return nullptr;
}

Expected<FileSystem::File> MemoryFiles::open(std::string_view path, Open how) noexcept {
  if (const Content* found = find(path); found != nullptr) {
    if (how == Open::fresh) return fail(fails(StatusCode::exists, path, "exists"));
    return static_cast<File>(found - contents_.begin());
  }
  if (how != Open::fresh) return fail(fails(StatusCode::not_found, path, "no such file"));
  Content made{.name = Name(path), .bytes = nullptr, .size = 0, .capacity = 0};
  if (made.name != path) return fail(fails(StatusCode::invalid_argument, path, "is too long"));
  if (placed_ == path) {
    made.bytes = memory_.data();
    made.capacity = memory_.size();
  }
  if (!contents_.push_back(made)) return fail(StatusCode::out_of_memory);
  return static_cast<File>(contents_.size() - 1);
}

void MemoryFiles::close(File /*file*/) noexcept {}

Expected<std::size_t> MemoryFiles::read(File file, void* buffer, std::size_t n,
                                        std::uint64_t offset) noexcept {
  const Content& content = at(file);
  if (offset >= content.size) return 0;
  n = std::min<std::uint64_t>(n, content.size - offset);
  std::memcpy(buffer, content.bytes + offset, n);
  return n;
}

// What is new reads as zero.
Status MemoryFiles::extend(Content& content, std::uint64_t size) noexcept {
  if (size <= content.size) return {};
  if (size > content.capacity) {
    if (is_placed(content)) {
      return fails(StatusCode::io, content.name, "is longer than a pool of that maximum can be");
    }
    const std::uint64_t capacity = std::max<std::uint64_t>(2 * content.capacity, size);
    auto* bytes = static_cast<std::byte*>(std::realloc(content.bytes, capacity));
    if (bytes == nullptr) return StatusCode::out_of_memory;
    content.bytes = bytes;
    content.capacity = capacity;
  }
  if (!is_placed(content)) std::memset(content.bytes + content.size, 0, size - content.size);
  content.size = size;
  return {};
}

Status MemoryFiles::write(File file, const void* bytes, std::size_t n,
                          std::uint64_t offset) noexcept {
  Content& content = at(file);
  if (Status s = extend(content, offset + n); !s.ok()) return s;
  std::memcpy(content.bytes + offset, bytes, n);
  return {};
}

Status MemoryFiles::allocate(File file, std::uint64_t offset, std::uint64_t length) noexcept {
  return extend(at(file), offset + length);
}

Status MemoryFiles::punch(File /*file*/, std::uint64_t /*offset*/,
                          std::uint64_t /*length*/) noexcept {
  return StatusCode::unsupported;
}

Status MemoryFiles::sync(File /*file*/, AnySite /*site*/) noexcept { return {}; }
Expected<std::uint64_t> MemoryFiles::size(File file) noexcept { return at(file).size; }
void MemoryFiles::forget(File /*file*/) noexcept {}
bool MemoryFiles::lock(File /*file*/, Lock /*how*/) noexcept { return true; }
Expected<int> MemoryFiles::descriptor(File /*file*/) noexcept {
  return fail(StatusCode::unsupported);
}

void MemoryFiles::free(Content& content) noexcept {
  if (is_placed(content)) {
    (void)::madvise(content.bytes, content.capacity, MADV_DONTNEED);  // zeros again
  } else {
    std::free(content.bytes);
  }
  content = {};
}

Status MemoryFiles::rename(std::string_view from, std::string_view to) noexcept {
  Content* const file = find(from);
  if (file == nullptr) return fails(StatusCode::not_found, from, "no such file");
  if (Content* const old = find(to); old != nullptr && old != file) free(*old);
  file->name = to;
  return {};
}

Status MemoryFiles::remove(std::string_view path) noexcept {
  Content* const file = find(path);
  if (file == nullptr) return fails(StatusCode::not_found, path, "no such file");
  free(*file);
  return {};
}

Status MemoryFiles::make_folder(std::string_view /*path*/) noexcept { return {}; }
Status MemoryFiles::remove_folder(std::string_view /*path*/) noexcept { return {}; }
Status MemoryFiles::sync_folder(std::string_view /*path*/, AnySite /*site*/) noexcept { return {}; }

Status MemoryFiles::list(std::string_view path,
                         FunctionRef<void(std::string_view)> visit) noexcept {
  for (const Content& content : contents_) {
    std::string_view name = content.name;
    if (name.size() <= path.size() || !name.starts_with(path) || name[path.size()] != '/') continue;
    name.remove_prefix(path.size() + 1);
    if (name.find('/') == std::string_view::npos) visit(name);
  }
  return {};
}

}  // namespace perdure
