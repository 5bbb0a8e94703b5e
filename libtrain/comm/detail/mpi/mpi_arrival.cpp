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
constexpr std::size_t kMaxReason = 2000;
// How long rank 0 has to answer a rank that gives up. It polls; if it does not answer, it has not arrived.
constexpr std::chrono::milliseconds kAnswerTimeout{2000};
constexpr std::chrono::milliseconds kAnswerTimeoutAfterAbort{200};

// Pauses grow from 20 microseconds to half a millisecond, so that the communication thread takes almost no time from a
// rank that computes. If a caller waits, there is no pause.
class Pause {
 public:
  void operator()(const WaitPolicy& policy) {
    if (policy.has_waiters()) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(length_);
    length_ = std::min(2 * length_, kMaxLength);
  }

 private:
  static constexpr std::chrono::microseconds kMaxLength{500};
  std::chrono::microseconds length_{20};
};

std::string passed_its_deadline(int rank) {
  return text(
      "rank ", rank,
      " reached its own deadline before all ranks had arrived. Use the same timeout on all ranks, or raise it.");
}

}  // namespace

MpiArrival::MpiArrival(MPI_Comm comm, const FirstFailure& aborted) : comm_(comm), aborted_(aborted) {
  LIBTRAIN_CHECK_MPI(MPI_Comm_rank(comm_, &rank_));
  LIBTRAIN_CHECK_MPI(MPI_Comm_size(comm_, &world_size_));
}

bool MpiArrival::wait(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy) {
  aborted_.throw_if_any();
  ++generation_;
  return rank_ == 0 ? gather(fingerprint, names, policy) : await_outcome(fingerprint, names, policy);
}

void MpiArrival::refuse(const std::string& reason) {
  if (rank_ == 0) {
    notify_others({.kind = Kind::failed}, reason);
  } else {
    send(0, {.kind = Kind::failed}, reason);
  }
}

bool MpiArrival::gather(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy) {
  std::vector<int> missing(static_cast<std::size_t>(world_size_) - 1);
  std::iota(missing.begin(), missing.end(), 1);
  std::optional<int> late;
  bool equal = true;
  for (Pause pause; true;) {
    if (const auto message = receive(MPI_ANY_SOURCE)) {
      if (message->header.kind == Kind::failed) give_up(message->reason);
      // From an earlier barrier: the rank gave up, but took part in the collective.
      if (message->header.generation != generation_) continue;
      if (message->header.kind == Kind::late) {
        late = message->sender;
      } else {
        std::erase(missing, message->sender);
        equal = equal && message->header.fingerprint == fingerprint;
      }
      continue;  // all messages are received before the decision
    }
    if (missing.empty() && !late) break;
    if (aborted_.exists()) give_up(text("rank ", names.name_of(0), " failed: ", aborted_.reason()));
    if (missing.empty()) give_up(passed_its_deadline(names.name_of(*late)));
    if (late || policy.deadline.expired()) {
      std::ranges::transform(missing, missing.begin(), [&](int rank) { return names.name_of(rank); });
      give_up(missing_ranks(missing));
    }
    pause(policy);
  }
  notify_others({.kind = equal ? Kind::equal : Kind::different});
  return equal;
}

bool MpiArrival::await_outcome(std::uint64_t fingerprint, const HostTransport& names, const WaitPolicy& policy) {
  send(0, {.kind = Kind::arrived, .generation = generation_, .fingerprint = fingerprint});
  std::optional<Deadline> end;
  for (Pause pause; true; pause(policy)) {
    if (const auto outcome = receive(0)) {
      if (outcome->header.kind == Kind::failed) throw CommunicationError(outcome->reason);
      return outcome->header.kind == Kind::equal;
    }
    if (!end && aborted_.exists()) {
      send(0, {.kind = Kind::failed}, text("rank ", names.name_of(rank_), " failed: ", aborted_.reason()));
      end = Deadline::after(kAnswerTimeoutAfterAbort);
    } else if (!end && policy.deadline.expired()) {
      send(0, {.kind = Kind::late, .generation = generation_});
      end = Deadline::after(kAnswerTimeout);
    } else if (end && end->expired()) {
      aborted_.throw_if_any();
      // MPI may show rank 0 that this rank arrived, and only later that it was late: rank 0 then starts the collective.
      send(0, {.kind = Kind::failed}, passed_its_deadline(names.name_of(rank_)));
      throw CommunicationError(missing_ranks({names.name_of(0)}));
    }
  }
}

void MpiArrival::send(int rank, const Header& header, const std::string& reason) {
  std::array<char, sizeof(Header) + kMaxReason> bytes;
  const auto length = std::min(reason.size(), kMaxReason);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), reason.data(), length);
  LIBTRAIN_CHECK_MPI(MPI_Send(bytes.data(), static_cast<int>(sizeof(header) + length), MPI_BYTE, rank, kTag, comm_));
}

std::optional<MpiArrival::Message> MpiArrival::receive(int sender) {
  int found = 0;
  MPI_Status status;
  LIBTRAIN_CHECK_MPI(MPI_Iprobe(sender, kTag, comm_, &found, &status));
  if (found == 0) return {};
  std::array<char, sizeof(Header) + kMaxReason> bytes;
  LIBTRAIN_CHECK_MPI(
      MPI_Recv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, status.MPI_SOURCE, kTag, comm_, &status));
  int length = 0;
  LIBTRAIN_CHECK_MPI(MPI_Get_count(&status, MPI_BYTE, &length));
  Message message{.sender = status.MPI_SOURCE, .header = {}, .reason = {}};
  std::memcpy(&message.header, bytes.data(), sizeof(Header));
  message.reason.assign(bytes.data() + sizeof(Header), static_cast<std::size_t>(length) - sizeof(Header));
  return message;
}

// Ranks that have not arrived yet receive it when they arrive.
void MpiArrival::notify_others(const Header& header, const std::string& reason) {
  for (int rank = 0; rank < world_size_; ++rank) {
    if (rank != rank_) send(rank, header, reason);
  }
}

void MpiArrival::give_up(const std::string& reason) {
  try {
    notify_others({.kind = Kind::failed}, reason);
  } catch (const CommunicationError&) {
    // A peer is also lost for MPI; the first reason is the one to report.
  }
  throw CommunicationError(reason);
}

}  // namespace libtrain::detail
