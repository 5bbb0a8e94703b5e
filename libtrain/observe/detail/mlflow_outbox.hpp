#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <libtrain/base/text.hpp>
#include <libtrain/observe/tracker.hpp>

namespace libtrain::detail {

struct MlflowMetric {
  std::string key;
  double value;
  std::int64_t timestamp_ms;
  std::int64_t step;
};

struct MlflowArtifact {
  std::filesystem::path file;  ///< or a folder
  std::string name;
};

struct MlflowRegistration {
  std::string model;
  std::string artifact;
};

/// What is to be sent to an MLflow server, in this order.
struct MlflowOutbox {
  NamedValues params = {};
  NamedValues tags = {};
  std::deque<MlflowMetric> metrics = {};
  std::deque<MlflowArtifact> artifacts = {};
  std::deque<MlflowRegistration> registrations = {};
  std::optional<RunStatus> status = {};

  void append(MlflowOutbox&& other) {
    const auto move_all = [](auto& from, auto& to) {
      to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    move_all(other.params, params);
    move_all(other.tags, tags);
    move_all(other.metrics, metrics);
    move_all(other.artifacts, artifacts);
    move_all(other.registrations, registrations);
    if (other.status) status = other.status;
    other = {};
  }
};

/// Numbers of things, for a message.
struct MlflowCounts {
  std::size_t metrics = 0, params = 0, tags = 0, artifacts = 0, registrations = 0, statuses = 0;

  static MlflowCounts of(const MlflowOutbox& box) {
    return {box.metrics.size(),   box.params.size(),        box.tags.size(),
            box.artifacts.size(), box.registrations.size(), box.status ? std::size_t{1} : 0};
  }

  void add(const MlflowCounts& other) {
    metrics += other.metrics;
    params += other.params;
    tags += other.tags;
    artifacts += other.artifacts;
    registrations += other.registrations;
    statuses += other.statuses;
  }

  /// "12 metrics, 1 artifact"; empty if nothing is counted.
  std::string words() const {
    std::vector<std::string> parts;
    const auto add_part = [&](std::size_t count, const char* what) {
      if (count > 0) parts.push_back(text(count, " ", what, count == 1 ? "" : "s"));
    };
    add_part(metrics, "metric");
    add_part(params, "parameter");
    add_part(tags, "tag");
    add_part(artifacts, "artifact");
    add_part(registrations, "model registration");
    if (statuses > 0) parts.emplace_back("the run's status");
    return join(parts, ", ");
  }
};

}  // namespace libtrain::detail
