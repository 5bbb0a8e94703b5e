#include <libtrain/data/image/mixup.hpp>

#include <algorithm>
#include <vector>

#include <libtrain/base/error.hpp>
#include <libtrain/base/text.hpp>
#include <libtrain/data/image/random_draws.hpp>

namespace libtrain::data {

namespace {

void check_lambda(double lambda) {
  if (!(lambda >= 0 && lambda <= 1)) {
    throw UsageError(text("The share that a sample keeps when it is mixed is ", lambda, "; it must be from 0 to 1."));
  }
}

void mix_into(float* sample, const float* previous, std::size_t count, float kept, float taken) {
  for (std::size_t i = 0; i < count; ++i) sample[i] = previous[i] * taken + sample[i] * kept;
}

}  // namespace

double draw_mixup(double alpha, SampleRandom& random) {
  return symmetric_beta(alpha, random);
}

void mixup(std::span<float> samples, std::size_t batch, double lambda) {
  check_lambda(lambda);
  if (batch == 0 || samples.size() % batch != 0) {
    throw UsageError(text("A batch of ", batch, " samples has ", samples.size(),
                          " elements; there must be a sample, and equally many elements in each."));
  }
  const std::size_t count = samples.size() / batch;
  const auto kept = static_cast<float>(lambda);
  const auto taken = static_cast<float>(1 - lambda);
  // From the last to the first: what each takes from is still as it was, but for the last when the first takes from it.
  const auto last_sample = samples.last(count);
  const std::vector<float> last(last_sample.begin(), last_sample.end());
  for (std::size_t i = batch; i-- > 1;) {
    mix_into(samples.data() + i * count, samples.data() + (i - 1) * count, count, kept, taken);
  }
  mix_into(samples.data(), last.data(), count, kept, taken);
}

void mix_labels(std::span<const std::int64_t> labels, std::size_t classes, double lambda, std::span<float> targets) {
  check_lambda(lambda);
  if (targets.size() != labels.size() * classes) {
    throw UsageError(text("Targets for ", labels.size(), " labels of ", classes, " classes have ", targets.size(),
                          " elements; they must have one for each label and class."));
  }
  for (const auto label : labels) {
    if (label < 0 || static_cast<std::uint64_t>(label) >= classes) {
      throw UsageError(text("A label to mix is ", label, "; labels must be from 0 to ", classes, " - 1."));
    }
  }
  std::fill(targets.begin(), targets.end(), 0.0f);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::size_t previous = i == 0 ? labels.size() - 1 : i - 1;
    float* row = targets.data() + i * classes;
    row[static_cast<std::size_t>(labels[i])] += static_cast<float>(lambda);
    row[static_cast<std::size_t>(labels[previous])] += static_cast<float>(1 - lambda);
  }
}

}  // namespace libtrain::data
