// MemoryFiles: files in the memory of this process, for a backup that its maker alone reads.
//
// WHAT  A FileSystem without a disk: nothing outlives the object, so that a sync has nothing to do.
//   The content of one file lies where the user wants it; the others have memory of their own.
//   Folders are parts of names. Every one exists.
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "platform/file_system.h"
#include "util/containers.h"

namespace perdure {

class MemoryFiles final : public FileSystem {
 public:
  // The file `path` will have its content in `memory`: a mapping of zeros, private and anonymous,
  // which must stay valid.
  MemoryFiles(std::string_view path, std::span<std::byte> memory) noexcept
      : placed_(path), memory_(memory) {}
  MemoryFiles(const MemoryFiles&) = delete;
  MemoryFiles& operator=(const MemoryFiles&) = delete;
  ~MemoryFiles() override;

  // Errors: not_found, exists, out_of_memory.
  Expected<File> open(std::string_view path, Open how) noexcept override;
  void close(File file) noexcept override;
  Expected<std::size_t> read(File file, void* buffer, std::size_t n,
                             std::uint64_t offset) noexcept override;
  // Errors: out_of_memory; io (the file with a place of its own has no more room).
  Status write(File file, const void* bytes, std::size_t n, std::uint64_t offset) noexcept override;
  Status allocate(File file, std::uint64_t offset, std::uint64_t length) noexcept override;
  Status punch(File file, std::uint64_t offset, std::uint64_t length) noexcept override;
  Status sync(File file, AnySite site) noexcept override;
  Expected<std::uint64_t> size(File file) noexcept override;
  Expected<Facts> facts(File file) noexcept override {
    return Facts{.device = 0, .inode = static_cast<std::uint64_t>(file) + 1, .names = 1};
  }
  void forget(File file) noexcept override;
  bool lock(File file, Lock how) noexcept override;
  Expected<int> descriptor(File file) noexcept override;
  Status rename(std::string_view from, std::string_view to) noexcept override;
  Status remove(std::string_view path) noexcept override;
  Status make_folder(std::string_view path) noexcept override;
  Status remove_folder(std::string_view path) noexcept override;
  Status sync_folder(std::string_view path, AnySite site) noexcept override;
  Status list(std::string_view path, FunctionRef<void(std::string_view)> visit) noexcept override;

 private:
  using Name = Text<63>;
  struct Content {
    Name name;  // empty: removed
    std::byte* bytes;
    std::size_t size, capacity;
  };

  Content* find(std::string_view path) noexcept;
  Content& at(File file) noexcept { return contents_[static_cast<std::size_t>(file)]; }
  bool is_placed(const Content& content) const noexcept { return content.bytes == memory_.data(); }
  Status extend(Content& content, std::uint64_t size) noexcept;
  void free(Content& content) noexcept;

  Name placed_;
  std::span<std::byte> memory_;
  Array<Content> contents_;  // a File is the number of one
};

}  // namespace perdure
