#include "testing/coherence/memory.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>

namespace perdure::testing {
namespace {

struct Owned {
  std::uint64_t bytes = 0;
  bool file = false;
  int callers = 0;
  std::array<void*, 8> codes = {};
};

// Never destroyed: memory is freed until the end of the process.
std::mutex& latch() {
  static auto* it = new std::mutex;
  return *it;
}
std::map<std::uint64_t, Owned>& owned() {
  static auto* it = new std::map<std::uint64_t, Owned>;
  return *it;
}
thread_local constinit bool inside = false;

void remember(void* p, std::size_t bytes, bool file) {
  if (p == nullptr || inside) return;
  inside = true;
  Owned memory{.bytes = bytes, .file = file};
  memory.callers = backtrace(memory.codes.data(), static_cast<int>(memory.codes.size()));
  {
    std::lock_guard guard(latch());
    owned()[reinterpret_cast<std::uint64_t>(p)] = memory;
  }
  inside = false;
}
void forget(void* p) {
  if (p == nullptr || inside) return;
  inside = true;
  {
    std::lock_guard guard(latch());
    owned().erase(reinterpret_cast<std::uint64_t>(p));
  }
  inside = false;
}

std::uint64_t load_address() {
  std::uint64_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uint64_t*>(out) = info->dlpi_addr;
        return 1;  // the program comes first
      },
      &address);
  return address;
}

}  // namespace

Memory memory_at(std::uint64_t address) {
  Owned memory;
  std::uint64_t begin = 0;
  {
    std::lock_guard guard(latch());
    auto it = owned().upper_bound(address);
    if (it != owned().begin()) {
      --it;
      begin = it->first;
      memory = it->second;
    }
  }
  if (address - begin < memory.bytes) {
    Memory found{.kind = memory.file ? Memory::Kind::file : Memory::Kind::heap,
                 .begin = begin,
                 .bytes = memory.bytes};
    // The first code is in remember(), the second in the function that was wrapped.
    for (int i = 2; i < memory.callers; ++i) {
      found.callers.push_back(reinterpret_cast<std::uint64_t>(memory.codes[i]));
    }
    return found;
  }
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(address), &info) == 0) return {};
  Memory fixed{.kind = Memory::Kind::fixed, .begin = address / 64 * 64, .bytes = 64};
  if (info.dli_sname != nullptr) {
    fixed.begin = reinterpret_cast<std::uint64_t>(info.dli_saddr);
    fixed.name = info.dli_sname;
  }
  return fixed;
}

void name_memory_of_thread(bool on) { inside = !on; }

std::string short_name(const std::string& full) {
  std::string kept;
  int depth = 0;
  for (const char c : full) {
    if (c == '<' || c == '(' || c == '{') ++depth;
    if (depth == 0) kept += c;
    if ((c == '>' || c == ')' || c == '}') && depth > 0) --depth;
  }
  while (kept.ends_with(' ')) kept.pop_back();
  for (const char* tail : {" const", " [clone"}) {
    if (const auto at = kept.find(tail); at != std::string::npos) kept.resize(at);
  }
  if (const auto space = kept.rfind(' '); space != std::string::npos) kept.erase(0, space + 1);
  for (std::size_t at; (at = kept.find("perdure::")) != std::string::npos;) kept.erase(at, 9);
  return kept;
}

Frames frames_of(const std::set<std::uint64_t>& codes) {
  Frames frames;
  if (codes.empty()) return frames;
  const std::uint64_t base = load_address();
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string command = "addr2line -a -f -i -C -e '" + self + "'";
  char text[32];
  for (const std::uint64_t code : codes) {
    std::snprintf(text, sizeof(text), " 0x%lx", code - base - 1);
    command += text;
  }
  FILE* out = popen(command.c_str(), "r");
  if (out == nullptr) return frames;
  std::vector<Frame>* current = nullptr;
  std::array<char, 16384> buffer;
  std::string function;
  while (std::fgets(buffer.data(), buffer.size(), out) != nullptr) {
    std::string line = buffer.data();
    if (line.ends_with('\n')) line.pop_back();
    if (line.starts_with("0x") && line.size() == 18) {
      current = &frames[std::strtoull(line.c_str(), nullptr, 16) + base + 1];
      function.clear();
    } else if (function.empty()) {
      function = line;
    } else if (current != nullptr) {
      line = line.substr(0, line.find(" (discriminator"));
      current->push_back({.full = function,
                          .function = short_name(function),
                          .place = line.substr(line.rfind('/') + 1)});
      function.clear();
    }
  }
  pclose(out);
  return frames;
}

}  // namespace perdure::testing

using perdure::testing::forget;
using perdure::testing::remember;

extern "C" {
void* __real_malloc(std::size_t bytes);
void* __real_calloc(std::size_t n, std::size_t bytes);
void* __real_aligned_alloc(std::size_t alignment, std::size_t bytes);
void __real_free(void* p);
void* __real_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void* p, std::size_t bytes);

void* __wrap_malloc(std::size_t bytes) {
  void* p = __real_malloc(bytes);
  remember(p, bytes, false);
  return p;
}
void* __wrap_calloc(std::size_t n, std::size_t bytes) {
  void* p = __real_calloc(n, bytes);
  remember(p, n * bytes, false);
  return p;
}
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  void* p = __real_aligned_alloc(alignment, bytes);
  remember(p, bytes, false);
  return p;
}
void __wrap_free(void* p) {
  forget(p);
  __real_free(p);
}
void* __wrap_mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  void* p = __real_mmap(at, bytes, protection, flags, file, offset);
  if (p != MAP_FAILED) remember(p, bytes, file >= 0);
  return p;
}
int __wrap_munmap(void* p, std::size_t bytes) {
  forget(p);
  return __real_munmap(p, bytes);
}
}

// NOLINTBEGIN(misc-new-delete-overloads)
void* operator new(std::size_t bytes) {
  void* p = __real_malloc(bytes);
  if (p == nullptr) throw std::bad_alloc();
  remember(p, bytes, false);
  return p;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto to = static_cast<std::size_t>(alignment);
  void* p = __real_aligned_alloc(to, (bytes + to - 1) / to * to);
  if (p == nullptr) throw std::bad_alloc();
  remember(p, bytes, false);
  return p;
}
void operator delete(void* p) noexcept {
  forget(p);
  __real_free(p);
}
void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
void operator delete(void* p, std::align_val_t) noexcept { operator delete(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { operator delete(p); }
// NOLINTEND(misc-new-delete-overloads)
