#pragma once

#include <chrono>
#include <exception>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <libtrain/base/clock.hpp>
#include <libtrain/base/error.hpp>
#include <libtrain/comm/tcp/store_rendezvous.hpp>

namespace libtrain::detail {

/// The store at `place`, which rank 0 begins to serve. Throws as StoreRendezvous's constructor does. c10d waits without
/// a bound in most calls to a store, so each of them belongs into `call_with_deadline`.
c10::intrusive_ptr<c10d::Store> open_store(const StorePlace& place, const Deadline& deadline);

/// Whether the store is a file, as opposed to a server.
bool is_file(const StorePlace& place);

/// Of a place that is a file.
std::string path_of(const StorePlace& place);

/// Who serves the store at `place`: "rank 0" or "torchrun's agent".
std::string server_of(const StorePlace& place);

/// The time left in whole milliseconds, as c10d wants it: at least one, for it takes 0 for no bound at all, and no more
/// than it can hand to poll(2).
std::chrono::milliseconds time_left(const Deadline& deadline);

/// For messages.
double seconds(std::chrono::milliseconds time);

/// The first line of what c10d threw, without the C++ stack that it appends.
std::string first_line(const std::exception& error);

/// The error for a store that said nothing for `patience`, when this rank `request`: "registered rank 3".
CommunicationError no_answer(const StorePlace& place, const std::string& request, std::chrono::milliseconds patience);

}  // namespace libtrain::detail
