// Classifies short texts, on any number of ranks: a custom data set whose samples have different lengths.
//
//   mpirun -n 2 texts                      sentences that the program generates
//   mpirun -n 2 texts --data reviews.tsv   lines of a label (0 or more), a tab, and a text

#include <array>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <libtrain/libtrain.hpp>

namespace lt = libtrain;

namespace {

constexpr std::int64_t kPad = 0;
constexpr std::int64_t kVocabulary = 257;  // the bytes, numbered from 1, and padding

struct Line {
  std::int64_t label = 0;
  std::string text;
};

// Bytes as tokens, each masked with probability `masked`.
class Texts : public lt::data::DatasetOf<lt::data::TokenSample> {
 public:
  Texts(std::vector<Line> lines, double masked) : lines_(std::move(lines)), masked_(masked) {}

  std::uint64_t size() const override { return lines_.size(); }

  lt::data::TokenSample get(std::uint64_t index, lt::data::SampleRandom& random) const override {
    lt::data::TokenSample sample{.label = lines_[index].label};
    for (const char letter : lines_[index].text) {
      sample.ids.push_back(random.uniform() < masked_ ? kPad : 1 + static_cast<unsigned char>(letter));
    }
    return sample;
  }

  // With a checksum, so that ranks and resumed runs detect other texts.
  lt::data::DatasetIdentity identity() const override {
    lt::data::ContentHasher hasher;
    for (const auto& line : lines_) hasher.update(std::to_string(line.label) + '\t' + line.text + '\n');
    return {std::to_string(size()) + " texts with checksum " + to_string(hasher.digest())};
  }

 private:
  std::vector<Line> lines_;
  double masked_;
};

// "the small cat sleeps": the class is the animal, the other words are random.
std::vector<Line> made_up(std::uint64_t count, std::uint64_t seed) {
  constexpr std::array kSizes = {"small", "large", "very old", "tired", "remarkably friendly"};
  constexpr std::array kAnimals = {"cat", "horse", "penguin", "tortoise"};
  constexpr std::array kVerbs = {"sleeps", "runs away", "looks at the other animals", "eats"};
  const auto choose = [](const auto& words, lt::data::SampleRandom& random) {
    return random.integer(0, static_cast<int>(words.size()) - 1);
  };
  std::vector<Line> lines;
  for (std::uint64_t index = 0; index < count; ++index) {
    lt::data::SampleRandom random(seed, 0, index);
    const int animal = choose(kAnimals, random);
    lines.push_back({animal, std::string("the ") + kSizes[choose(kSizes, random)] + ' ' + kAnimals[animal] + ' ' +
                                 kVerbs[choose(kVerbs, random)]});
  }
  return lines;
}

std::vector<Line> read_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw lt::EnvironmentError("Cannot open '" + path + "'. Check the path.");
  std::vector<Line> lines;
  for (std::string line; std::getline(file, line);) {
    const auto tab = line.find('\t');
    const auto label = lt::parse_integer(std::string_view(line).substr(0, tab), 0, 1'000'000);
    if (tab == std::string::npos || !label || tab + 1 == line.size()) {
      throw lt::EnvironmentError("Line " + std::to_string(lines.size() + 1) + " of '" + path +
                                 "' is not a label, a tab and a text. Write labels as whole numbers of 0 or more.");
    }
    lines.push_back({*label, line.substr(tab + 1)});
  }
  return lines;
}

// An embedding, a convolution, the maximum over the text, and a linear layer.
struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(std::int64_t classes) {
    register_module("embedding", embedding);
    register_module("convolution", convolution);
    output = register_module("output", torch::nn::Linear(64, classes));
  }

  // ids int64 [B, T], mask bool [B, T] -> [B, classes]
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& mask) {
    const auto features = torch::relu(convolution(embedding(ids).transpose(1, 2)));
    return output(features.masked_fill(~mask.unsqueeze(1), 0).amax(2));
  }

  torch::nn::Embedding embedding{torch::nn::EmbeddingOptions(kVocabulary, 32)};
  torch::nn::Conv1d convolution{torch::nn::Conv1dOptions(32, 64, 5).padding(2)};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(Classifier);

void train(lt::Context& context) {
  const auto epochs = context.integer("epochs", 1, 100000);
  const auto batch_size = static_cast<std::uint64_t>(context.integer("batch-size", 1));
  const auto path = context.option("data");
  auto lines = path.empty() ? made_up(2000, context.seed()) : read_lines(path);
  std::int64_t classes = 1;
  for (const auto& line : lines) classes = std::max(classes, line.label + 1);

  // Every tenth text is held out.
  std::vector<Line> kept;
  std::vector<Line> held;
  for (std::size_t index = 0; index < lines.size(); ++index) {
    (index % 10 == 0 ? held : kept).push_back(std::move(lines[index]));
  }
  const Texts train_set(std::move(kept), 0.05);
  const Texts test_set(std::move(held), 0);
  const auto pad = [](const std::vector<lt::data::TokenSample>& texts) { return lt::data::pad_tokens(texts, kPad, 8); };
  lt::data::DataLoaderOf loader(train_set, pad, {.batch_size = batch_size}, context.shard());
  lt::data::DataLoaderOf held_out(test_set, pad, {.batch_size = 64, .remainder = lt::data::Remainder::exact},
                                  context.shard());

  Classifier model(classes);
  torch::optim::AdamW optimizer{model->parameters(), torch::optim::AdamWOptions(2e-3)};
  lt::Trainer trainer{context, model, optimizer, {.epochs = epochs}};
  trainer.evaluate_with(held_out, {"accuracy"}, [&](const lt::data::TokenBatch& batch) {
    return model->forward(batch.ids, batch.attention_mask).argmax(1).eq(batch.labels);
  });
  trainer.fit(loader, [&](const lt::data::TokenBatch& batch) {
    return torch::cross_entropy_loss(model->forward(batch.ids, batch.attention_mask), batch.labels);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return lt::run(argc, argv,
                 {.description = "Classifies short texts.",
                  .options = {{.name = "data",
                               .help = "File of lines: label, tab, text (default: generated sentences)",
                               .value = "",
                               .may_change = true},
                              {"epochs", "Passes over the training texts", "3"},
                              {"batch-size", "Texts per rank and step", "32"}}},
                 train);
}
