#include <libtrain/launch/detail/job.hpp>

#include <algorithm>
#include <cstdint>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/launch/detail/launchers.hpp>

namespace libtrain::detail {
namespace {

using Job = Sourced<std::optional<std::string>>;

constexpr std::size_t kMaxJob = 128;

Job named_by_user(const Environment& environment) {
  const auto name = environment.get("LIBTRAIN_JOB_ID");
  if (!name) return {};
  const bool has_control =
      std::any_of(name->begin(), name->end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (has_control || name->size() > kMaxJob) {
    throw EnvironmentError(text("LIBTRAIN_JOB_ID is ", in_quotes(*name), ". Use at most ", kMaxJob,
                                " characters without control characters, the same on all ranks of the job."));
  }
  return {*name, "LIBTRAIN_JOB_ID"};
}

Job named_by(const Environment& environment, const char* kind, const char* variable) {
  const auto value = environment.get(variable);
  return value ? Job{text(kind, ' ', value->substr(0, kMaxJob)), variable} : Job{};
}

// A heterogeneous job has an id for each of its components, and one step over all of them.
Job slurm_step(const Environment& environment) {
  const auto* variable = environment.has("SLURM_JOB_ID_HET_GROUP_0") ? "SLURM_JOB_ID_HET_GROUP_0" : "SLURM_JOB_ID";
  const auto job = environment.get(variable);
  const auto* step_variable = environment.has("SLURM_STEP_ID") ? "SLURM_STEP_ID" : "SLURM_STEPID";
  const auto step = environment.get(step_variable);
  if (!job || !step) return {};
  return {text("Slurm job ", *job, ", step ", *step).substr(0, kMaxJob), text(variable, ", ", step_variable)};
}

Job first_known(std::initializer_list<Job> jobs) {
  const auto known = std::find_if(jobs.begin(), jobs.end(), [](const Job& job) { return job.value.has_value(); });
  return known != jobs.end() ? *known : Job{std::nullopt, "no variable names it"};
}

// "none" is torchrun's value for no identifier.
Job torchrun_run(const Environment& environment) {
  if (environment.get("TORCHELASTIC_RUN_ID") == "none") return {};
  return named_by(environment, "torchrun's run", "TORCHELASTIC_RUN_ID");
}

// For ranks that got their numbers from the user or a script: the Slurm step that started them, if it has as many
// tasks.
Job step_of_as_many(const Launch& launch, const Environment& environment) {
  const auto step = read_slurm_step(environment);
  if (!step || !step->world_size || step->world_size->value != launch.world_size.value) return {};
  return slurm_step(environment);
}

// Only variables that the launcher sets on all ranks: with one that only some ranks have inherited, ranks would not
// find each other.
Job named_by_launcher(const Launch& launch, const Environment& environment) {
  const auto azure_run = [&] { return named_by(environment, "Azure ML run", "AZUREML_RUN_ID"); };
  switch (launch.launcher) {
    case Launcher::torchrun:
      return torchrun_run(environment);
    case Launcher::explicit_options:
    case Launcher::plain:
      return first_known({step_of_as_many(launch, environment), azure_run()});
    case Launcher::slurm:
      return slurm_step(environment);
    case Launcher::open_mpi:
      return named_by(environment, "PMIx namespace", "PMIX_NAMESPACE");
    case Launcher::pmix:
      return first_known({slurm_step(environment), named_by(environment, "PMIx namespace", "PMIX_NAMESPACE")});
    case Launcher::pmi:
      return slurm_step(environment);
    case Launcher::pals:
      return named_by(environment, "PALS application", "PALS_APID");
    case Launcher::flux:
      return named_by(environment, "Flux job", "FLUX_JOB_ID");
    default:
      return azure_run();
  }
}

}  // namespace

void find_job(Launch& launch, const Environment& environment) {
  launch.job = first_known({named_by_user(environment), named_by_launcher(launch, environment)});
}

int default_port_of(const std::string& job) {
  constexpr int kFirst = 10'000;
  constexpr int kLast = 32'767;
  std::uint32_t hash = 0x811c9dc5;  // FNV-1a
  for (const unsigned char byte : job) hash = (hash ^ byte) * 0x01000193;
  return kFirst + static_cast<int>(hash % (kLast - kFirst + 1));
}

}  // namespace libtrain::detail
