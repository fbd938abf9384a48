#include "bench/workloads/path_keys.h"

#include <array>
#include <bit>
#include <string_view>

#include "bench/workloads/keys.h"
#include "bench/workloads/random.h"
#include "bench/workloads/text_writer.h"

namespace perdure::bench {
namespace {

using Names = std::array<Piece, 16>;

constexpr std::size_t kGroup = 256;  // numbers of paths
constexpr std::array<std::uint32_t, 8> kSizes = {20, 2, 5, 160, 2, 9, 55, 3};

// The package of a place in a group that begins with package `first`, and the file in it.
struct Place {
  std::uint8_t package = 0;
  std::uint8_t file = 0;
};
using Places = std::array<std::array<Place, kGroup>, kSizes.size()>;
constexpr Places make_places() {
  Places places{};
  for (std::size_t first = 0; first < kSizes.size(); ++first) {
    std::size_t at = 0;
    for (std::size_t n = 0; n < kSizes.size(); ++n) {
      const std::size_t package = (first + n) % kSizes.size();
      for (std::uint32_t file = 0; file < kSizes[package]; ++file) {
        places[first][at++] = {static_cast<std::uint8_t>(package), static_cast<std::uint8_t>(file)};
      }
    }
  }
  return places;
}
constexpr Places kPlaces = make_places();

// What packages install. The share of a kind is that of its occurrences in kKinds.
enum class Package : std::uint8_t {
  python,
  headers,
  library,
  manual,
  html,
  icons,
  translations,
  data,
};
constexpr std::array<Package, 16> kKinds = {
    Package::python,  Package::python,  Package::python,       Package::python,
    Package::headers, Package::headers, Package::headers,      Package::library,
    Package::library, Package::manual,  Package::manual,       Package::html,
    Package::html,    Package::icons,   Package::translations, Package::data};

// Pairs, for the numbers 2n and 2n + 1.
constexpr std::array<std::string_view, 4> kDocuments = {"changelog.Debian.gz", "NEWS.Debian.gz",
                                                        "copyright", "README.Debian"};
constexpr Names kSecondWords = {"",     "base", "cache", "data", "file", "impl", "info", "io",
                                "item", "main", "set",   "test", "type", "util", "view", "work"};
constexpr Names kLanguages = {"ar", "cs", "da",    "de", "el", "es",    "fi", "fr",
                              "it", "ja", "nb_NO", "nl", "pl", "pt_BR", "ru", "zh_CN"};
constexpr Names kIconFolders = {"16x16/actions", "22x22/actions", "24x24/apps",    "32x32/apps",
                                "48x48/apps",    "64x64/apps",    "128x128/apps",  "scalable/apps",
                                "16x16/status",  "22x22/status",  "24x24/devices", "32x32/places",
                                "48x48/status",  "64x64/devices", "256x256/apps",  "symbolic/apps"};
constexpr std::array<Piece, 4> kLibrarySuffixes = {"", "-dev", "-dev", "-data"};
constexpr std::array<Piece, 4> kSuffixes = {"", "-common", "-doc", "-utils"};

struct File {
  std::uint64_t package;  // the number of the package
  std::uint64_t draw;     // random bits of the package
  std::uint32_t place;    // in the package, beginning with 0, without the documents
  std::uint32_t name;     // distinct in the package

  Package kind() const noexcept { return kKinds[draw & 15]; }
};

// A name with a digit after its word is that of a library, so `lib` before a word is no part of it.
void put_package(TextWriter& out, const File& file, std::uint64_t seed) noexcept {
  const std::uint64_t suffix = file.draw >> 4 & 3;
  const Package kind = file.kind();
  if (kind == Package::library || kind == Package::headers) {
    out.put("lib");
    out.put_word(file.package, seed);
    out.put(static_cast<char>('0' + (file.draw >> 6 & 7)));
    return out.put_short(kLibrarySuffixes[suffix]);
  }
  if (kind == Package::python) out.put("python3-");
  out.put_word(file.package, seed);
  if (kind != Package::python) out.put_short(kSuffixes[suffix]);
}

// Directories of a package: the first files are in its top, the others below it.
void put_folder(TextWriter& out, const File& file) noexcept {
  const auto folder = static_cast<unsigned>(std::bit_width(file.place));
  if (folder == 0) return;
  out.put_short(kTopics[((file.draw >> 9) + folder) % kTopics.size()]);
  out.put('/');
}

void put_name(TextWriter& out, const File& file, char joint) noexcept {
  const std::uint64_t names = mix_bits(file.name + (file.draw >> 20), 10);
  out.put_short(kTopics[names % kTopics.size()]);
  if (names / kTopics.size() == 0) return;
  out.put(joint);
  out.put_short(kSecondWords[names / kTopics.size()]);
}

void put_in_folder(TextWriter& out, const File& file, char joint) noexcept {
  out.put('/');
  put_folder(out, file);
  put_name(out, file, joint);
}

void put_python(TextWriter& out, const File& file, std::uint64_t seed) noexcept {
  out.put("/usr/lib/python3/dist-packages/");
  out.put_word(file.package, seed);
  out.put('/');
  put_folder(out, file);
  // The compiled files are in a directory of their own.
  const bool compiled = std::bit_width(file.place) % 2 != 0;
  if (compiled) out.put("__pycache__/");
  put_name(out, file, '_');
  out.put(compiled ? ".cpython-311.pyc" : ".py");
}

void put_file(TextWriter& out, const File& file, std::uint64_t seed) noexcept {
  const auto in_shared = [&](std::string_view folder, std::string_view extension) {
    out.put(folder);
    put_package(out, file, seed);
    out.put('_');  // no package has one in its name
    put_name(out, file, '-');
    out.put(extension);
  };
  const auto in_own = [&](std::string_view folder, std::string_view extension) {
    out.put(folder);
    put_package(out, file, seed);
    put_in_folder(out, file, '-');
    out.put(extension);
  };
  switch (file.kind()) {
    case Package::python:
      return put_python(out, file, seed);
    case Package::headers:
      return in_own("/usr/include/", (file.draw >> 40 & 1) != 0 ? ".h" : ".hpp");
    case Package::library:
      in_own("/usr/lib/x86_64-linux-gnu/", ".so.");
      out.put_number(file.draw >> 41 & 7);
      out.put('.');
      return out.put_number(file.draw >> 44 & 31);
    case Package::manual:
      return in_shared("/usr/share/man/man3/", ".3.gz");
    case Package::html:
      out.put("/usr/share/doc/");
      put_package(out, file, seed);
      out.put("/html");
      put_in_folder(out, file, '_');
      return out.put(".html");
    case Package::icons:
      out.put("/usr/share/icons/hicolor/");
      out.put_short(kIconFolders[file.place / 8 % kIconFolders.size()]);
      return in_shared("/", ".png");
    case Package::translations:
      out.put("/usr/share/locale/");
      out.put_short(kLanguages[file.place / 8 % kLanguages.size()]);
      return in_shared("/LC_MESSAGES/", ".mo");
    case Package::data:
      return in_own("/usr/share/", (file.draw >> 40 & 1) != 0 ? ".xml" : ".conf");
  }
}

}  // namespace

std::size_t write_path(std::uint64_t number, std::uint64_t seed, char* out) noexcept {
  const std::uint64_t pair = number / 2;
  const std::uint64_t group = pair / kGroup;
  const Place place = kPlaces[mix64(group ^ seed) % kSizes.size()][pair % kGroup];
  // Twice the number: words of odd numbers are not used.
  const std::uint64_t package = 2 * (group * kSizes.size() + place.package);
  File file{.package = package, .draw = mix64(package + seed), .place = 0, .name = 0};
  TextWriter writer(out);
  if (place.file < kDocuments.size() / 2) {
    writer.put("/usr/share/doc/");
    put_package(writer, file, seed);
    writer.put('/');
    writer.put(kDocuments[2 * place.file + number % 2]);
  } else {
    file.place = place.file - static_cast<std::uint32_t>(kDocuments.size() / 2);
    file.name = static_cast<std::uint32_t>(2 * file.place + number % 2);
    put_file(writer, file, seed);
  }
  return writer.size();
}

}  // namespace perdure::bench
