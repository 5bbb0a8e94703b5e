#pragma once

#include <string>

#include <libtrain/base/clock.hpp>

namespace libtrain {

/// Where ranks that do not know each other yet leave notes for one another. Notes may hold secrets: whoever can read
/// the place can join the job.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  /// Leaves `bytes` under `key`, which reads as a subject: "rank 3", "address of rank 3". Throws EnvironmentError where
  /// the key is there already: two processes with one rank, or what an earlier job has left; CommunicationError where
  /// the place does not answer before the deadline.
  virtual void set(const std::string& key, const std::string& bytes, const Deadline& deadline) = 0;

  /// What was left under `key`, as soon as it is there. Throws CommunicationError at the deadline: "rank 3 was not
  /// registered at tcp://host:port within 300 s".
  virtual std::string get(const std::string& key, const Deadline& deadline) = 0;

  /// Puts `bytes` in the place of what was left under `key`: everybody has read it, and it shall not outlive the
  /// meeting. Best effort, within a few seconds; nothing to do where notes cannot be changed or end with the meeting.
  virtual void replace(const std::string& /*key*/, const std::string& /*bytes*/) noexcept {}

  /// This rank has connected to all others and will not ask again; the place may be gone from now on.
  virtual void leave() noexcept {}
};

}  // namespace libtrain
