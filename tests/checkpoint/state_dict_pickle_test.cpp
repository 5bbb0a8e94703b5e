#include <libtrain/checkpoint/detail/state_dict_pickle.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/checkpoint/detail/file_fault.hpp>

#include <tests/checkpoint/pth_bytes.hpp>

namespace libtrain::detail {
namespace {

using test::kOrderedDict;
using test::pickle_of;
using test::pickled_number;
using test::pickled_storage;
using test::pickled_tensor;
using test::pickled_text;
using test::pickled_tuple;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The sentence of the fault; the test fails where there is none.
std::string refusal_of(std::string_view pickle) {
  try {
    read_state_dict_pickle(pickle);
  } catch (const FileFault& fault) {
    return fault.sentence;
  }
  ADD_FAILURE() << "the pickle was read";
  return {};
}

std::vector<std::string> names_in(std::string_view pickle) {
  std::vector<std::string> names;
  for (const auto& tensor : read_state_dict_pickle(pickle)) names.push_back(tensor.info.name);
  return names;
}

std::string dict_of(const std::string& items) {
  return "}(" + items + "u";
}

const std::string kTensor = pickled_tensor("0", 6, {2, 3}, {3, 1});

TEST(StateDictPickle, ReadsTensorsOfAnOrderedDictAndOfDictsInIt) {
  const auto tensors = read_state_dict_pickle(test::sample_state_dict());
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].info.name, "weight");
  EXPECT_EQ(tensors[0].info.type, ElementType::float32);
  EXPECT_THAT(tensors[0].info.shape, ElementsAre(2, 3));
  EXPECT_THAT(tensors[0].strides, ElementsAre(3, 1));
  EXPECT_EQ(tensors[0].storage, "0");
  EXPECT_EQ(tensors[0].storage_bytes, 24U);
  EXPECT_EQ(tensors[1].info.name, "inner.bias");
}

TEST(StateDictPickle, NamesTensorsByTheKeysAndPositionsOnTheWay) {
  EXPECT_THAT(names_in(pickle_of(dict_of(pickled_text("a") + dict_of(pickled_number(7) + kTensor)))),
              ElementsAre("a.7"));
  EXPECT_THAT(names_in(pickle_of("](" + kTensor + "K\1" + kTensor + "e")), ElementsAre("0", "2"));
  EXPECT_THAT(names_in(pickle_of("(" + kTensor + kTensor + "t")), ElementsAre("0", "1"));
  EXPECT_THAT(names_in(pickle_of(kTensor)), ElementsAre(""));
  EXPECT_THAT(names_in(pickle_of("}")), IsEmpty());
}

TEST(StateDictPickle, ReadsViewsOfOneStorage) {
  const auto tensors = read_state_dict_pickle(pickle_of(
      dict_of(pickled_text("a") + pickled_tensor("0", 6, {3, 2}, {1, 3}) + pickled_text("b") +
              pickled_tensor("0", 6, {4}, {0}, 5) + pickled_text("c") + pickled_tensor("0", 6, {0, 9}, {9, 1}))));
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_THAT(tensors[0].strides, ElementsAre(1, 3));
  EXPECT_EQ(tensors[1].first, 5U);
  EXPECT_THAT(tensors[2].info.shape, ElementsAre(0, 9));
}

TEST(StateDictPickle, ReadsParametersTypesAndPlainValues) {
  const auto parameter = "ctorch._utils\n_rebuild_parameter\n(" + kTensor + "\x88" + kOrderedDict + "tR";
  EXPECT_THAT(names_in(pickle_of(dict_of(pickled_text("p") + parameter))), ElementsAre("p"));
  const auto of_dtype = "ctorch._utils\n_rebuild_tensor_v3\n((" + pickled_text("storage") +
                        "ctorch.storage\nUntypedStorage\n" + pickled_text("0") + pickled_text("cpu") + "K\4tQ" +
                        pickled_number(0) + pickled_tuple({2}) + pickled_tuple({1}) + "\x89" + kOrderedDict +
                        "ctorch\nuint16\ntR";
  const auto typed = read_state_dict_pickle(pickle_of(of_dtype));
  ASSERT_EQ(typed.size(), 1U);
  EXPECT_EQ(typed[0].info.type, ElementType::uint16);
  EXPECT_EQ(typed[0].storage_bytes, 4U);
  const auto values = dict_of(pickled_text("a") + "N" + pickled_text("b") + "\x88" + pickled_text("c") + "G12345678" +
                              pickled_text("d") + "ctorch\nfloat32\n" + pickled_text("e") + "ctorch\nSize\n" +
                              pickled_tuple({1, 2}) + "\x85R" + pickled_text("f") + kTensor);
  EXPECT_THAT(names_in(pickle_of(values)), ElementsAre("f"));
}

TEST(StateDictPickle, ReadsProtocol4) {
  const std::string frame = "\x95" + std::string(8, '\0');
  const auto name = [](std::string_view text) {
    return "\x8c" + std::string(1, static_cast<char>(text.size())) + std::string{text};
  };
  const auto dict =
      name("collections") + "\x94" + name("OrderedDict") + "\x94\x93\x94)R\x94" + name("x") + "\x94" + kTensor;
  EXPECT_THAT(names_in("\x80\x04" + frame + dict + "s."), ElementsAre("x"));
  EXPECT_EQ(refusal_of("\x80\x04" + frame + name("os") + name("system") + "\x93" + name("id") + "\x85R."),
            "needs 'os.system', which is code: only tensors, dicts, lists and plain values are read");
}

TEST(StateDictPickle, RefusesAllOtherGlobalsByName) {
  const std::vector<std::pair<std::string, std::string>> globals{
      {"os\nsystem", "os.system"},
      {"builtins\neval", "builtins.eval"},
      {"builtins\ngetattr", "builtins.getattr"},
      {"torch.nn.modules.linear\nLinear", "torch.nn.modules.linear.Linear"},
      {"torch\nload", "torch.load"},
      {"torch.jit\nload", "torch.jit.load"},
      {"torch\nQInt8Storage", "torch.QInt8Storage"},
      {"torch._utils\n_rebuild_sparse_tensor", "torch._utils._rebuild_sparse_tensor"},
      {"torch._utils\n_rebuild_tensor", "torch._utils._rebuild_tensor"},
      {"numpy.core.multiarray\nscalar", "numpy.core.multiarray.scalar"},
      {"collections\ndefaultdict", "collections.defaultdict"},
      {"argparse\nNamespace", "argparse.Namespace"},
      {"torch\nOrderedDict", "torch.OrderedDict"},
  };
  for (const auto& [line, name] : globals) {
    EXPECT_THAT(refusal_of(pickle_of("c" + line + "\n(tR")), HasSubstr("needs '" + name + "', which is code")) << name;
  }
}

TEST(StateDictPickle, RefusesOperationsThatStateDictsDoNotNeed) {
  EXPECT_THAT(refusal_of(pickle_of("(ios\nsystem\n")), HasSubstr("has operation 0x69"));             // INST
  EXPECT_THAT(refusal_of(pickle_of("(ccollections\nOrderedDict\no")), HasSubstr("operation 0x6f"));  // OBJ
  EXPECT_THAT(refusal_of(pickle_of("ccollections\nOrderedDict\n)\x81")), HasSubstr("0x81"));         // NEWOBJ
  EXPECT_THAT(refusal_of(pickle_of("\x82\x01")), HasSubstr("operation 0x82"));                       // EXT1
  EXPECT_THAT(refusal_of(pickle_of("Pid\n")), HasSubstr("operation 0x50"));                          // PERSID
}

TEST(StateDictPickle, RefusesCallsOfWhatIsNoFunctionAndWithOtherArguments) {
  EXPECT_THAT(refusal_of(pickle_of("ctorch\nfloat32\n)R")), HasSubstr("calls torch.float32, which is not a function"));
  EXPECT_THAT(refusal_of(pickle_of("ctorch\nFloatStorage\n)R")), HasSubstr("calls torch.FloatStorage"));
  EXPECT_THAT(refusal_of(pickle_of("})R")), HasSubstr("expects a function"));
  EXPECT_THAT(refusal_of(pickle_of("ccollections\nOrderedDict\n]\x85R")), HasSubstr("gives 1 arguments to"));
  EXPECT_THAT(refusal_of(pickle_of("ccollections\nOrderedDict\n]R")), HasSubstr("expects the arguments of a function"));
  EXPECT_THAT(refusal_of(pickle_of("ctorch._utils\n_rebuild_tensor_v2\n)R")), HasSubstr("gives 0 arguments"));
  EXPECT_THAT(refusal_of(pickle_of(kTensor + "}b")), HasSubstr("gives attributes to something else"));
  EXPECT_THAT(refusal_of(pickle_of(pickled_text("module") + "Q")), HasSubstr("expects the identity of a storage"));
  EXPECT_THAT(refusal_of(pickle_of("(" + pickled_text("module") + "ctorch\nFloatStorage\n" + pickled_text("0") +
                                   pickled_text("cpu") + "K\1tQ")),
              HasSubstr("expects the identity of a storage"));
  EXPECT_THAT(refusal_of(pickle_of(pickled_storage("0", 1, "float32"))), HasSubstr("expects the type of a storage"));
}

TEST(StateDictPickle, RefusesTensorsThatAreNotWithinTheirStorage) {
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  const auto refusal = [](const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                          std::int64_t first) {
    return refusal_of(pickle_of(pickled_tensor("0", 6, shape, strides, first)));
  };
  EXPECT_THAT(refusal({7}, {1}, 0), HasSubstr("has a tensor beyond its storage"));
  EXPECT_THAT(refusal({6}, {1}, 1), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal({2, 3}, {4, 1}, 0), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal({1}, {1}, kHuge), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal({3, 3}, {kHuge / 2 + 2, kHuge / 2 + 2}, 0), HasSubstr("beyond its storage"));
  EXPECT_THAT(refusal({kHuge, kHuge}, {0, 0}, 0), HasSubstr("too many elements"));
  EXPECT_THAT(refusal({-1}, {1}, 0), HasSubstr("has -1 for the shape of a tensor"));
  EXPECT_THAT(refusal({2}, {-1}, 1), HasSubstr("has -1 for the strides of a tensor"));
  EXPECT_THAT(refusal({1}, {1}, -1), HasSubstr("has -1 for the first element"));
  EXPECT_THAT(refusal({1, 1}, {1}, 0), HasSubstr("other strides than its shape"));
  EXPECT_THAT(refusal(std::vector<std::int64_t>(17, 1), std::vector<std::int64_t>(17, 1), 0),
              HasSubstr("more than 16 dimensions"));
  EXPECT_THAT(refusal_of(pickle_of(pickled_tensor("0", -1, {1}, {1}))), HasSubstr("has -1 for the size of a storage"));
  EXPECT_THAT(refusal_of(pickle_of(pickled_tensor("0", kHuge, {1}, {1}))), HasSubstr("too many elements"));
}

TEST(StateDictPickle, RefusesConjugatedViews) {
  const auto with_marks = [](const std::string& marks) {
    return pickle_of("ctorch._utils\n_rebuild_tensor_v2\n(" + pickled_storage("0", 1) + pickled_number(0) +
                     pickled_tuple({}) + pickled_tuple({}) + "\x89" + kOrderedDict + marks + "tR");
  };
  EXPECT_EQ(read_state_dict_pickle(with_marks("}")).size(), 1U);
  EXPECT_EQ(read_state_dict_pickle(with_marks(dict_of(pickled_text("conj") + "\x89"))).size(), 1U);
  EXPECT_THAT(refusal_of(with_marks(dict_of(pickled_text("conj") + "\x88"))), HasSubstr("conjugated or negated"));
}

TEST(StateDictPickle, RefusesEveryTruncationAndWhatFollowsTheEnd) {
  const auto whole = test::sample_state_dict();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) refusal_of(whole.substr(0, bytes));
  EXPECT_THAT(refusal_of(whole + "."), HasSubstr("ends before its last byte"));
  EXPECT_THAT(refusal_of(pickle_of("}}")), HasSubstr("more or less than one value"));
  EXPECT_THAT(refusal_of(pickle_of("(}")), HasSubstr("more or less than one value"));
}

TEST(StateDictPickle, RefusesStacksThatDoNotFit) {
  EXPECT_THAT(refusal_of(pickle_of("t")), HasSubstr("takes a mark"));
  EXPECT_THAT(refusal_of(pickle_of("a")), HasSubstr("takes a value"));
  EXPECT_THAT(refusal_of(pickle_of("}(NNNs")), HasSubstr("adds items to something else"));
  EXPECT_THAT(refusal_of(pickle_of("](NN\x87t")), HasSubstr("takes a value"));
  EXPECT_THAT(refusal_of(pickle_of("}(NNNu")), HasSubstr("a key without a value"));
  EXPECT_THAT(refusal_of(pickle_of("h\1")), HasSubstr("recalls a value"));
  EXPECT_THAT(refusal_of(pickle_of("q\1")), HasSubstr("takes a value"));
}

TEST(StateDictPickle, RefusesNamesThatAreAmbiguousOrNoText) {
  EXPECT_THAT(refusal_of(pickle_of(
                  dict_of(pickled_text("a.b") + kTensor + pickled_text("a") + dict_of(pickled_text("b") + kTensor)))),
              HasSubstr("two tensors called 'a.b'"));
  EXPECT_THAT(refusal_of(pickle_of(dict_of("N" + kTensor))), HasSubstr("neither text nor a whole number"));
  EXPECT_THAT(refusal_of(pickle_of(dict_of(pickled_text(std::string(4097, 'n')) + kTensor))),
              HasSubstr("longer than 4096"));
}

// A loss of every step, as training scripts keep them.
TEST(StateDictPickle, ReadsTensorsBesideLongLists) {
  std::string losses = "](";
  for (int i = 0; i < 100'000; ++i) losses += "K\1";
  const auto lists = dict_of(pickled_text("history_of_the_training_loss") + losses + "e" + pickled_text("w") + kTensor);
  EXPECT_THAT(names_in(pickle_of(dict_of(pickled_text("trainer") + lists))), ElementsAre("trainer.w"));
}

// Each tuple has the one before it twice: 2^40 tensors in 400 bytes.
TEST(StateDictPickle, RefusesTuplesThatContainEachOtherManyTimes) {
  std::string pickle = kTensor;
  for (char level = 0; level < 40; ++level)
    pickle += "q" + std::string(1, level) + "h" + std::string(1, level) + "\x86";
  EXPECT_THAT(refusal_of(pickle_of(pickle)), HasSubstr("contain each other many times"));
}

TEST(StateDictPickle, RefusesADictThatContainsItself) {
  EXPECT_THAT(refusal_of(pickle_of("}q\1" + pickled_text("a") + "h\1s")), HasSubstr("nested more than 64 deep"));
  EXPECT_THAT(refusal_of(pickle_of(std::string(2000, '('))), HasSubstr("nests values too deep"));
  EXPECT_THAT(refusal_of(pickle_of(std::string(100, ']') + std::string(99, 'a'))),
              HasSubstr("nested more than 64 deep"));
}

}  // namespace
}  // namespace libtrain::detail
