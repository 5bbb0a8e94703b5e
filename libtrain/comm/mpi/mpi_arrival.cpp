#include <libtrain/comm/mpi/mpi_arrival.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/mpi/mpi_check.hpp>

namespace libtrain::detail {

namespace {

constexpr int kArrivalTag = 1;
constexpr int kVerdictTag = 2;
// Rank 0 may have called later than another rank, and then knows later who is missing.
constexpr std::chrono::milliseconds kVerdictGrace{2000};

// Pauses grow from 20 microseconds to half a millisecond: a rank that computes loses next to nothing to its
// communication thread, and one that waits does not pause at all.
class Pause {
 public:
  void operator()(const Patience& patience) {
    if (patience.someone_waits()) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(length_);
    length_ = std::min(2 * length_, kLongest);
  }

 private:
  static constexpr std::chrono::microseconds kLongest{500};
  std::chrono::microseconds length_{20};
};

}  // namespace

MpiArrival::MpiArrival(MPI_Comm comm, const AbortReason& aborted) : comm_(comm), aborted_(aborted) {
  LIBTRAIN_CHECK_MPI(MPI_Comm_rank(comm_, &rank_));
  LIBTRAIN_CHECK_MPI(MPI_Comm_size(comm_, &world_size_));
}

bool MpiArrival::meet(std::uint64_t fingerprint, const HostTransport& names, const Patience& patience) {
  aborted_.throw_if_set();
  return rank_ == 0 ? gather(fingerprint, names, patience) : await_verdict(fingerprint, names, patience);
}

MpiArrival::Message MpiArrival::failure(const std::string& reason) {
  Message message{.outcome = Outcome::failed};
  std::strncpy(message.reason, reason.c_str(), sizeof(message.reason) - 1);
  return message;
}

void MpiArrival::refuse(const std::string& reason) {
  const auto message = failure(reason);
  if (rank_ == 0) {
    tell(message, std::vector<bool>(static_cast<std::size_t>(world_size_) - 1, true));
  } else {
    LIBTRAIN_CHECK_MPI(MPI_Send(&message, sizeof(message), MPI_BYTE, 0, kArrivalTag, comm_));
  }
}

bool MpiArrival::gather(std::uint64_t fingerprint, const HostTransport& names, const Patience& patience) {
  const auto peers = static_cast<std::size_t>(world_size_) - 1;
  // They outlive this frame when we give up, for MPI may still write there.
  auto arrivals = std::make_unique<std::vector<Message>>(peers);
  auto requests = std::make_unique<std::vector<MPI_Request>>(peers, MPI_REQUEST_NULL);
  for (std::size_t peer = 0; peer < peers; ++peer) {
    LIBTRAIN_CHECK_MPI(MPI_Irecv(&(*arrivals)[peer], sizeof(Message), MPI_BYTE, static_cast<int>(peer) + 1, kArrivalTag,
                                 comm_, &(*requests)[peer]));
  }
  std::vector<bool> came(peers);
  Pause pause;
  for (auto missing = peers; missing > 0;) {
    int index = MPI_UNDEFINED;
    int found = 0;
    LIBTRAIN_CHECK_MPI(MPI_Testany(static_cast<int>(peers), requests->data(), &index, &found, MPI_STATUS_IGNORE));
    if (found != 0 && index != MPI_UNDEFINED) {
      const auto& arrival = (*arrivals)[static_cast<std::size_t>(index)];
      came[static_cast<std::size_t>(index)] = true;
      --missing;
      if (arrival.outcome != Outcome::failed) continue;
      const std::string reason = arrival.reason;
      arrivals.release();
      requests.release();
      tell(failure(reason), std::vector<bool>(peers, true));
      throw CommunicationError(reason);
    }
    if (aborted_.is_set() || patience.deadline.expired()) {
      arrivals.release();
      requests.release();
      const auto reason = why_given_up(came, names);
      tell(failure(reason), came);
      throw CommunicationError(reason);
    }
    pause(patience);
  }
  const auto equals = [&](const Message& arrival) { return arrival.fingerprint == fingerprint; };
  const bool equal = std::all_of(arrivals->begin(), arrivals->end(), equals);
  tell({.outcome = equal ? Outcome::equal : Outcome::different}, came);
  return equal;
}

std::string MpiArrival::why_given_up(const std::vector<bool>& came, const HostTransport& names) const {
  if (aborted_.is_set()) return aborted_.text();
  std::vector<std::string> missing;
  for (std::size_t peer = 0; peer < came.size(); ++peer) {
    if (!came[peer]) missing.push_back(text("rank ", names.name_of(static_cast<int>(peer) + 1)));
  }
  return missing_ranks(missing);
}

void MpiArrival::tell(const Message& verdict, const std::vector<bool>& came) {
  for (std::size_t peer = 0; peer < came.size(); ++peer) {
    if (!came[peer]) continue;
    LIBTRAIN_CHECK_MPI(MPI_Send(&verdict, sizeof(verdict), MPI_BYTE, static_cast<int>(peer) + 1, kVerdictTag, comm_));
  }
}

bool MpiArrival::await_verdict(std::uint64_t fingerprint, const HostTransport& names, const Patience& patience) {
  const Message arrival{.fingerprint = fingerprint};
  LIBTRAIN_CHECK_MPI(MPI_Send(&arrival, sizeof(arrival), MPI_BYTE, 0, kArrivalTag, comm_));
  auto verdict = std::make_unique<Message>();
  MPI_Request request = MPI_REQUEST_NULL;
  LIBTRAIN_CHECK_MPI(MPI_Irecv(verdict.get(), sizeof(Message), MPI_BYTE, 0, kVerdictTag, comm_, &request));
  const auto latest = patience.deadline.later_by(kVerdictGrace);
  Pause pause;
  for (int arrived = 0;;) {
    LIBTRAIN_CHECK_MPI(MPI_Test(&request, &arrived, MPI_STATUS_IGNORE));
    if (arrived != 0) break;
    if (aborted_.is_set() || latest.expired()) {
      verdict.release();  // MPI may still write there
      aborted_.throw_if_set();
      throw CommunicationError(missing_ranks({text("rank ", names.name_of(0))}));
    }
    pause(patience);
  }
  if (verdict->outcome == Outcome::failed) throw CommunicationError(verdict->reason);
  return verdict->outcome == Outcome::equal;
}

}  // namespace libtrain::detail
