#include <libtrain/data/labelled_texts.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <libtrain/base/error.hpp>

#include <tests/data/memory_file.hpp>
#include <tests/support/message_of.hpp>
#include <tests/support/temporary_folder.hpp>

namespace libtrain::data {
namespace {

using libtrain::test::message_of;
using libtrain::test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Named = std::pair<std::string, std::string>;

LabelledTexts read_texts(const std::vector<Named>& contents, const LabelledTextsOptions& options = {}) {
  std::vector<std::unique_ptr<const File>> files;
  for (const auto& [name, content] : contents) files.push_back(memory_file(content, name));
  return LabelledTexts(std::move(files), options);
}

LabelledTexts read_texts(const std::string& name, const std::string& content,
                         const LabelledTextsOptions& options = {}) {
  return read_texts({{name, content}}, options);
}

std::string fault_in(const std::string& name, const std::string& content, const LabelledTextsOptions& options = {}) {
  return message_of<EnvironmentError>([&] { read_texts(name, content, options); });
}

std::vector<std::string> rows_of(const LabelledTexts& texts) {
  std::vector<std::string> all;
  for (std::uint64_t row = 0; row < texts.size(); ++row) {
    std::string line(texts.text(row));
    if (texts.has_pairs()) line += "|" + std::string(texts.second_text(row));
    if (!texts.classes().empty()) {
      for (const auto number : texts.classes_of(row)) line += " " + std::to_string(number);
    }
    all.push_back(std::move(line));
  }
  return all;
}

TEST(LabelledTexts, ReadsCsvWithQuotesAndLineBreaks) {
  const auto texts =
      read_texts("a.csv", "id,label,text\r\n1,good,\"said \"\"yes\"\",\nand went\"\r\n2,bad,no\r\n3,good,fine");
  EXPECT_THAT(rows_of(texts), ElementsAre("said \"yes\",\nand went 1", "no 0", "fine 1"));
  EXPECT_THAT(texts.classes(), ElementsAre("bad", "good"));
  EXPECT_FALSE(texts.has_pairs());
  EXPECT_EQ(texts.origin(0).path, "a.csv, line 2");
  EXPECT_EQ(texts.origin(1).path, "a.csv, line 4");
  EXPECT_EQ(texts.label(2), 1);
}

TEST(LabelledTexts, ReadsTabsWithoutQuotes) {
  const auto texts = read_texts("a.tsv", "sentence\tlabel\n\"half a quote\t1\na 5\" disk\t0\n");
  EXPECT_THAT(rows_of(texts), ElementsAre("\"half a quote 1", "a 5\" disk 0"));
}

// The columns of CoLA, which has no header.
TEST(LabelledTexts, FindsColumnsByNumber) {
  const auto texts = read_texts("train.tsv", "gj04\t1\t\tOur friends win.\ngj04\t0\t*\tThem win.\n",
                                {.header = CsvHeader::none, .text_column = "3", .label_column = "1"});
  EXPECT_THAT(rows_of(texts), ElementsAre("Our friends win. 1", "Them win. 0"));
  EXPECT_THAT(rows_of(read_texts("a.csv", "x,y\nwords,a\n", {.text_column = "0", .label_column = "1"})),
              ElementsAre("words 0"));
}

TEST(LabelledTexts, FindsPairsByUsualNames) {
  EXPECT_THAT(rows_of(read_texts("a.tsv", "index\tquestion\tsentence\tlabel\n0\tq\ts\tentailment\n")),
              ElementsAre("q|s 0"));
  EXPECT_THAT(rows_of(read_texts("a.tsv", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\ta\tb\n")),
              ElementsAre("a|b 0"));
  EXPECT_THAT(rows_of(read_texts("a.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t5\t6\ta\tb\t0\n")),
              ElementsAre("a|b 0"));
  EXPECT_THAT(rows_of(read_texts("a.csv", "premise,hypothesis,label1,gold_label\na,b,x,y\n")), ElementsAre("a|b 0"));
  // With a name for the texts there is no pair unless it is asked for.
  EXPECT_THAT(rows_of(read_texts("a.csv", "sentence1,sentence2,label\na,b,x\n", {.text_column = "sentence2"})),
              ElementsAre("b 0"));
  EXPECT_THAT(rows_of(read_texts("a.csv", "one,two,label\na,b,x\n", {.text_column = "two", .second_column = "one"})),
              ElementsAre("b|a 0"));
}

TEST(LabelledTexts, ReadsJsonLines) {
  const auto texts = read_texts("a.jsonl",
                                "{\"text\": \"tab\\there\", \"label\": 10, \"more\": {\"text\": [1]}}\n\n"
                                "{\"label\": 9, \"text\": \"\\u00e9\"}\n");
  EXPECT_THAT(rows_of(texts), ElementsAre("tab\there 1", "\xc3\xa9 0"));
  EXPECT_THAT(texts.classes(), ElementsAre("9", "10"));
  EXPECT_EQ(texts.origin(1).path, "a.jsonl, line 3");
}

TEST(LabelledTexts, SortsIntegersByValueAndNamesByBytes) {
  EXPECT_THAT(read_texts("a.csv", "text,label\na,10\nb,9\nc,0\n").classes(), ElementsAre("0", "9", "10"));
  EXPECT_THAT(read_texts("a.csv", "text,label\na,10\nb,9\nc,x\n").classes(), ElementsAre("10", "9", "x"));
  const auto all = read_texts("a.csv", "text,label\na,2\nb,0\nc,1\n");
  EXPECT_THAT(rows_of(all), ElementsAre("a 2", "b 0", "c 1"));
}

TEST(LabelledTexts, HaveTheGivenClassesInTheirOrder) {
  const LabelledTextsOptions options{.classes = {"good", "bad", "unused"}};
  const auto texts = read_texts("a.csv", "text,label\na,bad\nb,good\n", options);
  EXPECT_THAT(rows_of(texts), ElementsAre("a 1", "b 0"));
  EXPECT_THAT(texts.classes(), ElementsAre("good", "bad", "unused"));
  EXPECT_THAT(fault_in("a.csv", "text,label\na,bad\nb,ugly\n", options),
              AllOf(HasSubstr("file 'a.csv', line 3: expected one of the labels good, bad, unused, found 'ugly'."),
                    HasSubstr("leave such rows out")));
  EXPECT_THAT(message_of<UsageError>([] { read_texts("a.csv", "text,label\na,b\n", {.classes = {"b", "b"}}); }),
              HasSubstr("'b' is given twice"));
}

TEST(LabelledTexts, HaveSeveralClassesEach) {
  const LabelledTextsOptions options{.labels = TextLabels::several_classes};
  const auto texts =
      read_texts({{"a.csv", "text,labels\na,\"red, blue\"\nb,\nc,\"blue,blue\"\n"},
                  {"b.jsonl", "{\"text\": \"d\", \"labels\": [\"red\", \"a, b\"]}\n{\"text\": \"e\", \"labels\": []}"}},
                 options);
  EXPECT_THAT(texts.classes(), ElementsAre("a, b", "blue", "red"));
  EXPECT_THAT(rows_of(texts), ElementsAre("a 1 2", "b", "c 1", "d 0 2", "e"));
  EXPECT_THAT(message_of<UsageError>([&] { static_cast<void>(texts.label(1)); }), HasSubstr("Call classes_of()"));
  EXPECT_THROW(texts.second_text(5), UsageError);
  EXPECT_THAT(rows_of(read_texts("a.tsv", "text\tlabel\na\tx|y\n",
                                 {.labels = TextLabels::several_classes, .label_separator = '|'})),
              ElementsAre("a 0 1"));
  EXPECT_THAT(fault_in("b.jsonl", "{\"text\": \"d\", \"label\": [\"red\"]}"), HasSubstr("line 1: expected one label"));
  EXPECT_THAT(fault_in("a.csv", "text,labels\na,\"red,,blue\"\n", options), HasSubstr("expected a label, found none"));
  // As pandas writes a column of lists.
  for (const std::string list : {"[1, 3]", " ['red'] ", "[]"}) {
    EXPECT_THAT(fault_in("a.csv", "text,labels\na,x\nb,\"" + list + "\"\n", options),
                AllOf(HasSubstr("line 3: expected labels with ',' between them"), HasSubstr("'" + list + "'")));
  }
  EXPECT_THAT(rows_of(read_texts("a.csv", "text,labels\na,\"[x],y\"\nb,\"[x],[y]\"\nc,[x]\n", options)),
              ElementsAre("a 0 2", "b 0 1", "c 0"));
}

TEST(LabelledTexts, HaveNumbers) {
  const LabelledTextsOptions options{.labels = TextLabels::numbers};
  const auto texts = read_texts({{"a.tsv", "sentence1\tsentence2\tscore\na\tb\t5.000\n"},
                                 {"b.jsonl", "{\"sentence1\": \"c\", \"sentence2\": \"d\", \"score\": -1.5e-1}"}},
                                options);
  EXPECT_EQ(texts.number(0), 5.0);
  EXPECT_EQ(texts.number(1), -0.15);
  EXPECT_TRUE(texts.classes().empty());
  for (const std::string bad : {"x", "nan", "inf", "1e999", "", "1 2", "0x1"}) {
    EXPECT_THAT(fault_in("a.csv", "text,label\na," + bad + "\n", options),
                HasSubstr("line 2: expected a number as the label, found '" + bad + "'"));
  }
}

TEST(LabelledTexts, MayHaveNoLabels) {
  const LabelledTextsOptions options{.labels = TextLabels::none};
  EXPECT_THAT(rows_of(read_texts({{"a.txt", "one line\r\n\nanother"}, {"b.csv", "text,x\nthird,2\n"}}, options)),
              ElementsAre("one line", "another", "third"));
  EXPECT_THAT(message_of<UsageError>([] { read_texts("a.txt", "one\n"); }), HasSubstr("Read no labels"));
  const auto texts = read_texts({{"a.txt", "one\n"}}, {.labels = TextLabels::none, .classes = {"no", "yes"}});
  EXPECT_TRUE(texts.classes().empty());
  EXPECT_THROW(texts.label(0), UsageError);
}

TEST(LabelledTexts, JoinShardsAndKnowWhereEachRowIs) {
  const auto texts = read_texts({{"one.csv", "text,label\na,x\nb,y\n"}, {"two.tsv", "label\ttext\nw\tc\n"}});
  EXPECT_THAT(rows_of(texts), ElementsAre("a 1", "b 2", "c 0"));
  EXPECT_EQ(texts.origin(1).path, "one.csv, line 3");
  EXPECT_EQ(texts.origin(2).path, "two.tsv, line 2");
  EXPECT_THROW(texts.origin(3), UsageError);
  EXPECT_THROW(texts.text(3), UsageError);
  EXPECT_THROW(texts.label(3), UsageError);
  EXPECT_THROW(texts.number(0), UsageError);
  EXPECT_THAT(message_of<UsageError>(
                  [] { read_texts({{"one.csv", "text,label\na,x\n"}, {"two.csv", "text1,text2,label\na,b,x\n"}}); }),
              HasSubstr("'two.csv' has pairs of texts"));
}

TEST(LabelledTexts, NameTheColumnsThatExist) {
  for (const auto& options : {LabelledTextsOptions{.text_column = "body"},
                              {.label_column = "body"},
                              {.text_column = "text", .second_column = "body"}}) {
    EXPECT_THAT(message_of<UsageError>([&] { read_texts("a.csv", "text,label\na,x\n", options); }),
                HasSubstr("File 'a.csv' has no column 'body'; it has: text, label."));
    EXPECT_THAT(message_of<UsageError>([&] { read_texts("a.jsonl", "{\"text\": \"a\", \"label\": 1}", options); }),
                HasSubstr("File 'a.jsonl' has no column 'body'; it has: text, label."));
  }
  EXPECT_THAT(message_of<UsageError>([] { read_texts("a.csv", "words,label\na,x\n"); }),
              HasSubstr("it has: words, label."));
  EXPECT_THAT(message_of<UsageError>([] { read_texts("a.csv", "text,mark\na,x\n"); }),
              HasSubstr("it has: text, mark."));
  EXPECT_THAT(message_of<UsageError>([] { read_texts("a.csv", "text,a,a\nx,y,z\n", {.label_column = "a"}); }),
              HasSubstr("more than one column 'a'"));
  EXPECT_THAT(message_of<UsageError>([] { read_texts("a.docx", "text,label\na,x\n"); }),
              AllOf(HasSubstr("'a.docx'"), HasSubstr(".csv, .tsv, .jsonl")));
  EXPECT_THAT(message_of<UsageError>([] { read_texts(std::vector<Named>{}); }), HasSubstr("no files"));
}

struct BadRow {
  std::string name;
  std::string content;  // with the bad row in line 3, and two good ones around it
  std::string message;
};

// The rows of each file but the bad one are "before" and "after".
const std::vector<BadRow> kBadRows{
    {"a.csv", "text,label\nbefore,x\n,x\nafter,y\n", "line 3: expected a text, found none"},
    {"a.csv", "text,label\nbefore,x\n\" \t\",x\nafter,y\n", "line 3: expected a text, found none"},
    {"a.csv", "text,label\nbefore,x\nno,\nafter,y\n", "line 3: expected a label, found none"},
    {"a.csv", "text,label\nbefore,x\nshort\nafter,y\n", "line 3, byte offset 20: expected RFC 4180, found a row of 1"},
    {"a.csv", "text,label\nbefore,x\na,b,c\nafter,y\n", "line 3, byte offset 20: expected RFC 4180, found a row of 3"},
    {"a.csv", "text,label\nbefore,x\na \"b\",x\nafter,y\n",
     "line 3, byte offset 22: expected RFC 4180, found a quote in a field"},
    {"a.csv", "text,label\nbefore,x\n\"a \" b\",x\nafter,y\n",
     "line 3, byte offset 24: expected RFC 4180, found text after a closing quote"},
    {"a.csv", "text,label\nbefore,x\nno\rno,x\nafter,y\n",
     "line 3, byte offset 22: expected RFC 4180, found a carriage"},
    {"a.csv", "text,label\nbefore,x\nno \xc3,x\nafter,y\n", "line 3: expected UTF-8, found another byte at position"},
    {"a.csv", "text,label\nbefore,x\nno \xed\xa0\x80,x\nafter,y\n", "at position 4 of the text"},
    {"a.csv", "text,label\nbefore,x\nno,\xff\nafter,y\n", "line 3: expected UTF-8 as the label"},
    {"a.tsv", "label\ttext\nx\tbefore\nx\ny\tafter\n", "line 3, byte offset 20: expected RFC 4180, found a row of 1"},
    {"a.jsonl", "{\"text\":\"before\",\"label\":0}\n\n{\"text\":\"no\"}\n{\"text\":\"after\",\"label\":1}",
     "line 3: expected an object with the key 'label'"},
    {"a.jsonl", "{\"text\":\"before\",\"label\":0}\n\n{\"text\":3,\"label\":1}\n{\"text\":\"after\",\"label\":1}",
     "line 3: expected a string for 'text', found '3,"},
    {"a.jsonl",
     "{\"text\":\"before\",\"label\":0}\n\n{\"text\":\"no\",\"label\":null}\n{\"text\":\"after\",\"label\":1}",
     "line 3: expected a string, a number, true or false for 'label'"},
    {"a.jsonl", "{\"text\":\"before\",\"label\":0}\n\n{\"text\":\"no \"label\":1}\n{\"text\":\"after\",\"label\":1}",
     "line 3: expected"},
    {"a.jsonl", "{\"text\":\"before\",\"label\":0}\n\n[1, 2]\n{\"text\":\"after\",\"label\":1}",
     "line 3: expected an object, found '[1, 2]'"},
    {"a.jsonl",
     "{\"text\":\"before\",\"label\":0}\n\n{\"text\":\"\xff\",\"label\":1}\n{\"text\":\"after\",\"label\":1}",
     "line 3: expected UTF-8"},
};

TEST(LabelledTexts, RefuseBadRowsByFileAndLine) {
  for (const auto& bad : kBadRows) {
    EXPECT_THAT(fault_in(bad.name, bad.content), AllOf(HasSubstr("'" + bad.name + "'"), HasSubstr(bad.message)));
  }
}

TEST(LabelledTexts, CountAndDescribeBadRowsThatAreLeftOut) {
  for (const auto& bad : kBadRows) {
    SCOPED_TRACE(bad.message);
    const auto texts = read_texts(bad.name, bad.content, {.bad_texts = BadTexts::leave_out});
    EXPECT_THAT(rows_of(texts), ElementsAre("before 0", "after 1"));
    EXPECT_EQ(texts.left_out(), 1u);
    EXPECT_THAT(texts.first_left_out(), HasSubstr(bad.message));
  }
}

TEST(LabelledTexts, LeaveOutLabelsThatAreNotGiven) {
  const auto texts =
      read_texts("a.csv", "text,label\na,x\nb,z\nc,y\n", {.classes = {"x", "y"}, .bad_texts = BadTexts::leave_out});
  EXPECT_THAT(rows_of(texts), ElementsAre("a 0", "c 1"));
  EXPECT_EQ(texts.origin(1).path, "a.csv, line 4");
}

TEST(LabelledTexts, ARowThatIsLeftOutLeavesNoClassBehind) {
  const auto texts = read_texts("a.csv", "text,label\na,x\nb,\"y,,x\"\nc,z\n",
                                {.labels = TextLabels::several_classes, .bad_texts = BadTexts::leave_out});
  EXPECT_EQ(texts.left_out(), 1u);
  EXPECT_THAT(texts.classes(), ElementsAre("x", "z"));
}

TEST(LabelledTexts, FindColumnsThatTheFirstJsonObjectLacks) {
  const std::string lines = "{\"text\":\"a\"}\n{\"text\":\"b\",\"text_pair\":\"c\",\"label\":\"x\"}\n";
  EXPECT_THAT(fault_in("a.jsonl", lines), AllOf(HasSubstr("line 1"), HasSubstr("'text_pair'")));
  const auto texts = read_texts("a.jsonl", lines, {.bad_texts = BadTexts::leave_out});
  EXPECT_TRUE(texts.has_pairs());
  EXPECT_THAT(rows_of(texts), ElementsAre("b|c 0"));
}

TEST(LabelledTexts, RefuseColumnsOfOneName) {
  EXPECT_THAT(message_of<UsageError>([] { read_texts("a.csv", "text,label,label\na,x,y\n"); }),
              HasSubstr("more than one column 'label'"));
}

TEST(LabelledTexts, TakeLinesOfWhiteSpaceForNoTexts) {
  EXPECT_EQ(read_texts("a.txt", " \none\n\t\n two\n", {.labels = TextLabels::none}).size(), 2u);
}

// It could hide all rows after it.
TEST(LabelledTexts, RefuseAnOpenQuoteInAnyCase) {
  for (const auto bad_texts : {BadTexts::refuse, BadTexts::leave_out}) {
    EXPECT_THAT(fault_in("a.csv", "text,label\na,x\n\"b,x\nc,y\nd,y\n", {.bad_texts = bad_texts}),
                HasSubstr("line 3, byte offset 15: expected RFC 4180, found a quote that is not closed"));
  }
}

// The first row after it would become the header.
TEST(LabelledTexts, RefuseAMalformedHeaderInAnyCase) {
  const std::string content = "text, \"label\"\na,1\nb,2\n";
  LabelledTextsOptions options{.text_column = "0", .label_column = "1", .bad_texts = BadTexts::leave_out};
  EXPECT_THAT(fault_in("a.csv", content, options),
              HasSubstr("'a.csv', line 1, byte offset 6: expected RFC 4180, found a quote in a field"));
  options.header = CsvHeader::none;
  const auto texts = read_texts("a.csv", content, options);
  EXPECT_THAT(rows_of(texts), ElementsAre("a 0", "b 1"));
  EXPECT_EQ(texts.left_out(), 1u);
}

TEST(LabelledTexts, RefuseFilesWithoutTexts) {
  const LabelledTextsOptions leave_out{.bad_texts = BadTexts::leave_out};
  for (const std::string content : {"", "text,label\n", "\n\n"}) {
    EXPECT_THAT(fault_in("a.csv", content), HasSubstr("file 'a.csv': expected texts, found none."));
    EXPECT_THAT(fault_in("a.csv", content, leave_out), HasSubstr("expected texts, found none"));
    const auto texts = read_texts({{"a.csv", content}, {"b.csv", "text,label\na,x\n"}}, leave_out);
    EXPECT_EQ(texts.size(), 1u);
    EXPECT_EQ(texts.left_out(), 1u);
  }
  EXPECT_THAT(fault_in("a.jsonl", "\n"), HasSubstr("'a.jsonl': expected texts, found none"));
  EXPECT_THAT(fault_in("a.csv", "text,label\n,x\n", leave_out), HasSubstr("found none that can be used"));
}

TEST(LabelledTexts, RowsLongerThanAPieceAreWhole) {
  const std::string words(3 << 20, 'w');
  const auto csv = read_texts("a.csv", "text,label\n\"" + words + "\n\",x\nshort,y\n");
  EXPECT_EQ(csv.text(0), words + "\n");
  EXPECT_EQ(csv.text(1), "short");
  EXPECT_EQ(csv.origin(1).path, "a.csv, line 4");
  const auto json =
      read_texts("a.jsonl", "{\"text\": \"" + words + "\", \"label\": 1}\n{\"text\": \"short\", \"label\": 1}\n");
  EXPECT_EQ(json.text(0), words);
  EXPECT_EQ(json.text(1), "short");
}

TEST(LabelledTexts, RefuseOtherEncodingsAndEndlessRows) {
  for (const std::string mark : {"\xff\xfe", "\xfe\xff"}) {
    for (const std::string name : {"a.csv", "a.tsv", "a.jsonl"}) {
      EXPECT_THAT(fault_in(name, mark + "text,label\n"), AllOf(HasSubstr(name), HasSubstr("UTF-16")));
    }
  }
  EXPECT_EQ(read_texts("a.jsonl", "\xef\xbb\xbf{\"text\": \"a\", \"label\": 1}").size(), 1u);
  for (const auto format : {TextFormat::csv, TextFormat::lines}) {
    std::vector<std::unique_ptr<const File>> files;
    files.push_back(std::make_unique<const ZeroFile>());
    EXPECT_THAT(message_of<EnvironmentError>(
                    [&] { LabelledTexts(std::move(files), {.format = format, .labels = TextLabels::none}); }),
                AllOf(HasSubstr("'zeros', line 1"), HasSubstr("67108864 bytes")));
  }
}

TEST(LabelledTexts, IdentityChangesWithTextsAndLabels) {
  const auto identity = [](const std::string& content, const LabelledTextsOptions& options = {}) {
    return read_texts("a.csv", "text,label\n" + content, options).identity();
  };
  EXPECT_EQ(identity("a,x\nb,y\n"), identity("a,x\r\n\"b\",y"));
  EXPECT_NE(identity("a,x\nb,y\n"), identity("a,x\nb,x\n"));
  EXPECT_NE(identity("a,x\nb,y\n"), identity("ab,x\nb,y\n"));
  EXPECT_NE(identity("ab,x\nc,y\n"), identity("a,x\nbc,y\n"));
  EXPECT_NE(identity("a,x\nb,y\n"), identity("a,x\nb,z\n"));
  EXPECT_NE(identity("a,1\nb,2\n"), identity("a,1\nb,2\n", {.labels = TextLabels::numbers}));
}

TEST(ReadLabelledTexts, ReadsFilesAndFolders) {
  const test::TemporaryFolder folder;
  write_file(folder / "b.csv", "text,label\nb,x\n");
  write_file(folder / "a.jsonl", "{\"text\": \"a\", \"label\": \"y\"}");
  write_file(folder / "README.md", "not a text");
  EXPECT_THAT(rows_of(read_labelled_texts({folder.path().string()})), ElementsAre("a 1", "b 0"));
  EXPECT_THAT(rows_of(read_labelled_texts({folder / "b.csv", folder.path().string() + "/"})),
              ElementsAre("b 0", "a 1", "b 0"));
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_labelled_texts({folder / "c.csv"}); }), HasSubstr("c.csv"));
  const test::TemporaryFolder empty;
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_labelled_texts({empty.path().string()}); }),
              HasSubstr("found none whose names end with"));
}

TEST(ReadLabelledTexts, RefusesAFolderOfSeveralSplitsOrOfAPartOfItsFiles) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "more");
  const auto refusal = [&] {
    return message_of<EnvironmentError>([&] { read_labelled_texts({folder.path().string()}); });
  };
  for (const std::string name : {"train.csv", "more/dev_matched.csv"}) write_file(folder / name, "text,label\na,x\n");
  EXPECT_THAT(refusal(), AllOf(HasSubstr(folder.path().string()), HasSubstr("'dev', 'train'"),
                               HasSubstr("Name the files to read")));
  EXPECT_EQ(read_labelled_texts({folder / "train.csv", folder / "more"}).size(), 2u);
  std::filesystem::remove(folder / "train.csv");
  EXPECT_EQ(read_labelled_texts({folder.path().string()}).size(), 1u);
  write_file(folder / "more/train-00000-of-00002.csv", "text,label\na,x\n");
  std::filesystem::remove(folder / "more/dev_matched.csv");
  EXPECT_THAT(refusal(), HasSubstr("without 'more/train-00001-of-00002.csv'"));
}

// As load_dataset() of Hugging Face takes the names of folders.
TEST(ReadLabelledTexts, RefusesAFolderWithAFolderForEachSplit) {
  const test::TemporaryFolder folder;
  for (const std::string split : {"train", "test"}) {
    std::filesystem::create_directory(folder / split);
    write_file(folder / (split + "/0.csv"), "text,label\na,x\n");
  }
  EXPECT_THAT(message_of<EnvironmentError>([&] { read_labelled_texts({folder.path().string()}); }),
              HasSubstr("'test', 'train'"));
  EXPECT_EQ(read_labelled_texts({folder / "test"}).size(), 1u);
}

}  // namespace
}  // namespace libtrain::data
