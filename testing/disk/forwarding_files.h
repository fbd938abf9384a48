// ForwardingFiles: passes each call on to another file system. Tests derive from it, and change
// some of the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "platform/file_system.h"

namespace perdure::disk {

class ForwardingFiles : public FileSystem {
 public:
  explicit ForwardingFiles(FileSystem& files) noexcept : files_(files) {}

  Expected<File> open(std::string_view path, Open how) noexcept override {
    return files_.open(path, how);
  }
  void close(File file) noexcept override { files_.close(file); }
  Expected<File> borrow(std::string_view path, int descriptor) noexcept override {
    return files_.borrow(path, descriptor);
  }
  Expected<File> reopen(File file, std::string_view path) noexcept override {
    return files_.reopen(file, path);
  }
  Expected<std::size_t> read(File file, void* to, std::size_t n,
                             std::uint64_t at) noexcept override {
    return files_.read(file, to, n, at);
  }
  Status write(File file, const void* bytes, std::size_t n, std::uint64_t at) noexcept override {
    return files_.write(file, bytes, n, at);
  }
  Status allocate(File file, std::uint64_t at, std::uint64_t n) noexcept override {
    return files_.allocate(file, at, n);
  }
  Status punch(File file, std::uint64_t at, std::uint64_t n) noexcept override {
    return files_.punch(file, at, n);
  }
  Status sync(File file, AnySite site) noexcept override { return files_.sync(file, site); }
  Expected<std::uint64_t> size(File file) noexcept override { return files_.size(file); }
  Expected<Facts> facts(File file) noexcept override { return files_.facts(file); }
  void forget(File file) noexcept override { files_.forget(file); }
  bool lock(File file, Lock how) noexcept override { return files_.lock(file, how); }
  Expected<int> descriptor(File file) noexcept override { return files_.descriptor(file); }
  Status hold(std::string_view path, bool alone) noexcept override {
    return files_.hold(path, alone);
  }
  void let_go() noexcept override { files_.let_go(); }
  void resemble(File file) noexcept override { files_.resemble(file); }
  Status rename(std::string_view from, std::string_view to) noexcept override {
    return files_.rename(from, to);
  }
  Status remove(std::string_view path) noexcept override { return files_.remove(path); }
  Status make_folder(std::string_view path) noexcept override { return files_.make_folder(path); }
  Status remove_folder(std::string_view path) noexcept override {
    return files_.remove_folder(path);
  }
  Status sync_folder(std::string_view path, AnySite site) noexcept override {
    return files_.sync_folder(path, site);
  }
  Status list(std::string_view path, FunctionRef<void(std::string_view)> visit) noexcept override {
    return files_.list(path, visit);
  }
  bool does(AnySite site) noexcept override { return files_.does(site); }
  void violated(const Assertion& assertion) noexcept override { files_.violated(assertion); }

 protected:
  FileSystem& files_;
};

}  // namespace perdure::disk
