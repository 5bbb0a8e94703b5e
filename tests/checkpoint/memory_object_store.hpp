#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <libtrain/base/detail/object_store.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>

namespace libtrain::test {

/// What happens at a call of a MemoryObjectStore that is to fail.
enum class StoreFault {
  refuse,    ///< nothing is done
  empty,     ///< a put leaves an empty object, as Azure's client does if it is killed; else as refuse
  torn,      ///< a put leaves the first half of the object; else as refuse
  answered,  ///< all is done, but the answer is lost
  dead,      ///< as empty, and all later calls fail
};

/// An object store in memory.
class MemoryObjectStore final : public detail::ObjectStore {
 public:
  std::map<std::string, std::string> objects = {};
  int calls = 0;                          ///< that were made while it is disturbed
  int fails_at = 0;                       ///< the number of the call that fails; 0: none
  StoreFault fault = StoreFault::refuse;  ///< how
  bool is_disturbed = true;               ///< otherwise calls succeed and are not counted
  std::function<void(const std::string& name)> before_put = {};

  const std::string& name() const override { return name_; }

  std::vector<detail::StoredObject> list() override {
    std::vector<detail::StoredObject> found;
    perform("list", [&] {
      for (const auto& [name, bytes] : objects) found.push_back({.name = name, .bytes = bytes.size()});
    });
    return found;
  }

  void get(const std::string& name, const detail::ByteSink& sink) override {
    perform("get " + name, [&] {
      const auto found = objects.find(name);
      if (found == objects.end()) throw EnvironmentError(text("File '", name_, '/', name, "' does not exist."));
      const std::string_view bytes = found->second;
      sink(bytes.substr(0, bytes.size() / 2));
      sink(bytes.substr(bytes.size() / 2));
    });
  }

  void put(const std::string& name, const std::function<void(const detail::ByteSink&)>& content) override {
    if (before_put) before_put(name);
    std::string bytes;
    content([&](std::string_view piece) { bytes += piece; });
    const bool fails = is_disturbed && calls + 1 == fails_at;
    if (fails && (fault == StoreFault::empty || fault == StoreFault::dead)) objects[name].clear();
    if (fails && fault == StoreFault::torn) objects[name] = bytes.substr(0, bytes.size() / 2);
    perform("put " + name, [&] { objects[name] = bytes; });
  }

  void remove(const std::string& name) override {
    perform("remove " + name, [&] { objects.erase(name); });
  }

  void remove_folder(const std::string& folder) override {
    perform("remove " + folder, [&] {
      std::erase_if(objects, [&](const auto& object) { return object.first.starts_with(folder + '/'); });
    });
  }

 private:
  template <typename Work>
  void perform(const std::string& call, const Work& work) {
    if (!is_disturbed) return work();
    ++calls;
    const bool is_dead = fault == StoreFault::dead && fails_at > 0 && calls >= fails_at;
    if (calls != fails_at && !is_dead) return work();
    if (fault == StoreFault::answered) work();
    throw EnvironmentError(text("'", name_, "' does not answer (", call, "). Check the network."));
  }

  std::string name_ = "az://data/run7";
};

}  // namespace libtrain::test
