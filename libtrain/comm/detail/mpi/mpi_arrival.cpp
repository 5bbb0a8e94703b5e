#include <libtrain/comm/detail/mpi/mpi_arrival.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>

#include <libtrain/base/text.hpp>
#include <libtrain/comm/detail/mpi/mpi_check.hpp>

namespace libtrain::detail {

namespace {

constexpr int kTag = 1;
constexpr std::size_t kLongestReason = 2000;
// How long rank 0 has to answer one that wants to go. It polls; if it does not answer, it has not come.
constexpr std::chrono::milliseconds kAnswerTime{2000};
constexpr std::chrono::milliseconds kAnswerTimeOfAborted{200};

// Pauses grow from 20 microseconds to half a millisecond: a rank that computes loses next to nothing to its
// communication thread, and one that waits does not pause at all.
class Pause {
 public:
  void operator()(const WaitPolicy& policy) {
    if (policy.has_waiters()) {
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

MpiArrival::MpiArrival(MPI_Comm comm, const FirstFailure& aborted) : comm_(comm), aborted_(aborted) {
  LIBTRAIN_CHECK_MPI(MPI_Comm_rank(comm_, &rank_));
  LIBTRAIN_CHECK_MPI(MPI_Comm_size(comm_, &world_size_));
}

bool MpiArrival::meet(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy) {
  aborted_.throw_if_any();
  ++meeting_;
  return rank_ == 0 ? gather(fingerprint, names, policy) : await_verdict(fingerprint, names, policy);
}

void MpiArrival::refuse(const std::string& reason) {
  if (rank_ == 0) {
    tell_others({.word = Word::failed}, reason);
  } else {
    send(0, {.word = Word::failed}, reason);
  }
}

bool MpiArrival::gather(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy) {
  std::vector<int> missing(static_cast<std::size_t>(world_size_) - 1);
  std::iota(missing.begin(), missing.end(), 1);
  std::optional<int> late;
  bool equal = true;
  for (Pause pause; true;) {
    if (const auto message = receive(MPI_ANY_SOURCE)) {
      if (message->header.word == Word::failed) give_up(message->reason);
      // Of an earlier meeting: wanted to go, and came along.
      if (message->header.meeting != meeting_) continue;
      if (message->header.word == Word::late) {
        late = message->sender;
      } else {
        std::erase(missing, message->sender);
        equal = equal && message->header.fingerprint == fingerprint;
      }
      continue;  // all that are here are heard before anything is decided
    }
    if (missing.empty() && !late) break;
    if (aborted_.exists()) give_up(text("rank ", names.name_of(0), " failed: ", aborted_.reason()));
    if (missing.empty()) give_up(text("rank ", names.name_of(*late), " waited until its deadline and left."));
    if (late || policy.deadline.expired()) {
      std::ranges::transform(missing, missing.begin(), [&](int rank) { return names.name_of(rank); });
      give_up(missing_ranks(missing));
    }
    pause(policy);
  }
  tell_others({.word = equal ? Word::equal : Word::different});
  return equal;
}

bool MpiArrival::await_verdict(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy) {
  send(0, {.word = Word::come, .meeting = meeting_, .fingerprint = fingerprint});
  std::optional<Deadline> end;
  for (Pause pause; true; pause(policy)) {
    if (const auto verdict = receive(0)) {
      if (verdict->header.word == Word::failed) throw CommunicationError(verdict->reason);
      return verdict->header.word == Word::equal;
    }
    if (!end && aborted_.exists()) {
      send(0, {.word = Word::failed}, text("rank ", names.name_of(rank_), " failed: ", aborted_.reason()));
      end = Deadline::after(kAnswerTimeOfAborted);
    } else if (!end && policy.deadline.expired()) {
      send(0, {.word = Word::late, .meeting = meeting_});
      end = Deadline::after(kAnswerTime);
    } else if (end && end->expired()) {
      aborted_.throw_if_any();
      throw CommunicationError(missing_ranks({names.name_of(0)}));
    }
  }
}

void MpiArrival::send(int rank, const Header& header, const std::string& reason) {
  std::array<char, sizeof(Header) + kLongestReason> bytes;
  const auto length = std::min(reason.size(), kLongestReason);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), reason.data(), length);
  LIBTRAIN_CHECK_MPI(MPI_Send(bytes.data(), static_cast<int>(sizeof(header) + length), MPI_BYTE, rank, kTag, comm_));
}

std::optional<MpiArrival::Message> MpiArrival::receive(int sender) {
  int found = 0;
  MPI_Status status;
  LIBTRAIN_CHECK_MPI(MPI_Iprobe(sender, kTag, comm_, &found, &status));
  if (found == 0) return {};
  std::array<char, sizeof(Header) + kLongestReason> bytes;
  LIBTRAIN_CHECK_MPI(
      MPI_Recv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, status.MPI_SOURCE, kTag, comm_, &status));
  int length = 0;
  LIBTRAIN_CHECK_MPI(MPI_Get_count(&status, MPI_BYTE, &length));
  Message message{.sender = status.MPI_SOURCE, .header = {}, .reason = {}};
  std::memcpy(&message.header, bytes.data(), sizeof(Header));
  message.reason.assign(bytes.data() + sizeof(Header), static_cast<std::size_t>(length) - sizeof(Header));
  return message;
}

// Those who have not come yet find it when they come.
void MpiArrival::tell_others(const Header& header, const std::string& reason) {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_) send(rank, header, reason);
  }
}

void MpiArrival::give_up(const std::string& reason) {
  try {
    tell_others({.word = Word::failed}, reason);
  } catch (const CommunicationError&) {
    // A peer that is lost for MPI, too; the reason to tell is the first.
  }
  throw CommunicationError(reason);
}

}  // namespace libtrain::detail
