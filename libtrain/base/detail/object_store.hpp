#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace libtrain::detail {

/// An object of a store, without its content.
struct StoredObject {
  std::string name = {};  ///< below the store's location
  std::uint64_t bytes = 0;
};

/// Takes the next bytes of a sequence.
using ByteSink = std::function<void(std::string_view bytes)>;

/// Reads and writes the objects below one location of Azure Blob Storage, S3 or Google Cloud Storage. Their names are
/// relative to it, with '/' between their parts. All functions throw EnvironmentError, which names the object and
/// nothing secret, if the store denies access, or does not answer for so long that it is not asked again. Used by one
/// thread at a time.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  /// The location for messages, without anything secret.
  virtual const std::string& name() const = 0;

  /// All objects, at any depth, sorted by name as bytes; none if there is nothing at the location. Throws
  /// EnvironmentError if its container or bucket does not exist.
  virtual std::vector<StoredObject> list() = 0;

  /// Gives the bytes of an object to `sink`, in order. Throws EnvironmentError if there is no such object, or it
  /// changes meanwhile.
  virtual void get(const std::string& name, const ByteSink& sink) = 0;

  /// Creates or replaces an object, of the bytes that `content` gives to its sink; after a failure that may pass,
  /// `content` is called again. Throws what it throws. Whatever is thrown, and if the process is killed, the object is
  /// then as it was, absent, empty, or cut off.
  virtual void put(const std::string& name, const std::function<void(const ByteSink& sink)>& content) = 0;

  /// Removes an object, if there is one of this name.
  virtual void remove(const std::string& name) = 0;

  /// Removes all objects whose names begin with `folder` and '/', in any order.
  virtual void remove_folder(const std::string& folder) = 0;
};

}  // namespace libtrain::detail
