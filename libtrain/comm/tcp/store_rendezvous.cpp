#include <libtrain/comm/tcp/store_rendezvous.hpp>

#include <unistd.h>

#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/comm/tcp/call_with_deadline.hpp>
#include <libtrain/comm/tcp/open_store.hpp>

namespace libtrain {

namespace {

using detail::call_with_deadline;
using std::chrono::milliseconds;

// For what is done after the meeting, which must not hold up the job.
constexpr milliseconds kFarewellTime{5000};

// A server that does answer gets this long to say that a note has not come.
constexpr milliseconds kGraceTime{2000};

// Nothing at the deadline.
std::optional<std::string> read_note(c10d::Store& store, const std::string& key, const Deadline& deadline) {
  try {
    store.wait({key}, detail::time_left(deadline));
  } catch (const std::exception&) {
    if (deadline.expired()) return std::nullopt;
    throw;
  }
  const auto bytes = store.get(key);
  return std::string{bytes.begin(), bytes.end()};
}

// The same for a FileStore, whose own wait counts whole seconds.
std::optional<std::string> read_note_in_file(c10d::Store& store, const std::string& key, const Deadline& deadline) {
  constexpr milliseconds kPause{10};
  while (!store.check({key})) {
    if (deadline.expired()) return std::nullopt;
    std::this_thread::sleep_for(kPause);
  }
  const auto bytes = store.get(key);
  return std::string{bytes.begin(), bytes.end()};
}

std::string cause(const StorePlace& place, const std::exception& error) {
  const auto reason = detail::first_line(error);
  return detail::is_file(place) ? text("the file cannot be used (", reason, ").")
                                : text(detail::server_of(place), " has ended (", reason, ").");
}

}  // namespace

struct StoreRendezvous::State {
  c10::intrusive_ptr<c10d::Store> store;
};

StorePlace StorePlace::of(const Launch& launch, const Environment& environment) {
  StorePlace place{.url = launch.rendezvous.value, .rank = launch.rank.value, .world_size = launch.world_size.value};
  if (environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    place.agent_hosts_store = true;
    place.prefix = text("libtrain/", environment.get("TORCHELASTIC_RUN_ID").value_or(""), "/",
                        environment.get("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  }
  return place;
}

StoreRendezvous::StoreRendezvous(const StorePlace& place, const Deadline& deadline) : place_(place) {
  state_ = std::make_unique<State>(
      State{.store = c10::make_intrusive<c10d::PrefixStore>(place.prefix, detail::open_store(place, deadline))});
}

// A FileStore takes the lock of its file once more to count those that have left.
StoreRendezvous::~StoreRendezvous() {
  try {
    static_cast<void>(call_with_deadline(Deadline::after(kFarewellTime), [store = std::move(state_->store)]() mutable {
      store.reset();
      return true;
    }));
  } catch (const std::exception&) {
    // There is no thread to be had, and the store has ended on this one.
  }
}

void StoreRendezvous::set(const std::string& key, const std::string& bytes, const Deadline& deadline) {
  const auto patience = detail::time_left(deadline);
  std::optional<std::string> kept;
  try {
    // Of two processes with one key, one gets the other's bytes.
    kept =
        call_with_deadline(deadline, [store = state_->store, key, bytes] { return store->compareSet(key, "", bytes); });
  } catch (const std::exception& error) {
    throw CommunicationError(text("Cannot register ", key, " at ", place_.url, ": ", cause(place_, error)));
  }
  if (!kept) throw detail::no_answer(place_, text("registered ", key), patience);
  if (*kept == bytes) return;
  throw EnvironmentError(text("At ", place_.url, " ", key, " is registered already: ",
                              detail::is_file(place_)
                                  ? "the file is left from an earlier job, which did not end in good order, or "
                                    "another job uses it; remove it or give another path."
                                  : "two processes have the same rank, or another job meets there; give each job a "
                                    "port of its own."));
}

std::string StoreRendezvous::get(const std::string& key, const Deadline& deadline) {
  const auto patience = detail::time_left(deadline);
  const auto read = detail::is_file(place_) ? &read_note_in_file : &read_note;
  std::optional<std::optional<std::string>> answer;
  try {
    answer = call_with_deadline(deadline.later_by(kGraceTime),
                                [store = state_->store, read, key, deadline] { return read(*store, key, deadline); });
  } catch (const std::exception& error) {
    throw CommunicationError(text("Cannot read ", key, " at ", place_.url, ": ", cause(place_, error)));
  }
  if (!answer) throw detail::no_answer(place_, text("asked for ", key), patience);
  if (*answer) return **answer;
  throw CommunicationError(text(key, " was not registered at ", place_.url, " within ", detail::seconds(patience),
                                " s: that process did not start, has ended or cannot reach the place."));
}

// A FileStore's destructor would make the file anew that rank 0 has removed, open to all users.
void StoreRendezvous::leave() noexcept {
  if (!detail::is_file(place_)) return;
  static std::mutex mutex;
  static auto* const never_destroyed = new std::vector<c10::intrusive_ptr<c10d::Store>>;
  try {
    const std::lock_guard lock(mutex);
    never_destroyed->push_back(state_->store);
  } catch (const std::exception&) {
    // Without memory for it the file may stay.
  }
}

void StoreRendezvous::replace(const std::string& key, const std::string& bytes) noexcept {
  try {
    static_cast<void>(
        call_with_deadline(Deadline::after(kFarewellTime), [store = state_->store, place = place_, key, bytes] {
          if (detail::is_file(place)) {
            // A FileStore only appends, so the file has to go. Its last user removes it, too, but where two leave at
            // the same time neither takes itself for the last.
            unlink(detail::path_of(place).c_str());
          } else {
            store->set(key, bytes);
          }
          return true;
        }));
  } catch (const std::exception&) {
    // The server has ended, and its notes with it.
  }
}

}  // namespace libtrain
